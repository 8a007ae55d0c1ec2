package audit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"portico/resource/bodylimit"
)

// errForm is a body that cannot be made JSON.
var errForm = errors.New("a body of this form cannot be shown")

// sentToJSON is responseToJSON for the body of a request. Servers of Kubernetes
// do not look at its Content-Encoding: who names one would hide from audit what
// they store. So it is read as they read it, and inflated only if that fails; no
// body is good both ways.
func sentToJSON(body []byte, h http.Header) ([]byte, error) {
	object, err := formToJSON(body, h.Get("Content-Type"))
	if err == nil || h.Get("Content-Encoding") == "" {
		return object, err
	}
	return responseToJSON(body, h)
}

// responseToJSON returns a recorded body as JSON without any space; what the
// header says of its form holds. It is an error if there is more of it than
// maxObject.
func responseToJSON(body []byte, h http.Header) ([]byte, error) {
	body, err := inflate(body, h.Get("Content-Encoding"))
	if err != nil {
		return nil, err
	}
	return formToJSON(body, h.Get("Content-Type"))
}

// formToJSON makes a body of a content type JSON without any space.
func formToJSON(body []byte, contentType string) (_ []byte, err error) {
	switch mediaType := mediaTypeOf(contentType); {
	case mediaType == runtime.ContentTypeJSON, strings.HasSuffix(mediaType, "+json"):
	case mediaType == runtime.ContentTypeYAML, strings.HasSuffix(mediaType, "+yaml"):
		if _, err = bodylimit.Measure(body, mediaType, bodylimit.Maps); err != nil {
			return nil, err
		}
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, err
		}
	case mediaType == runtime.ContentTypeProtobuf:
		if body, err = protobufToJSON(body); err != nil {
			return nil, err
		}
	default:
		return nil, errForm
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, body); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// mediaTypeOf is the media type of a content type, in lower case: JSON if there is
// none. Of one whose parameters make no sense, too: servers do not look at them.
func mediaTypeOf(contentType string) string {
	if contentType == "" {
		return runtime.ContentTypeJSON
	}
	bare, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(bare))
}

// inflate undoes the encoding of a body.
func inflate(body []byte, encoding string) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
	default:
		return nil, errForm
	}
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxObject+1))
	if err == nil && len(plain) > maxObject {
		err = errForm
	}
	return plain, err
}

// protobufToJSON knows the built-in kinds, as clients do; of others only their
// server does.
func protobufToJSON(body []byte) ([]byte, error) {
	if _, err := bodylimit.Measure(body, runtime.ContentTypeProtobuf, bodylimit.Structs); err != nil {
		return nil, err
	}
	obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	return json.Marshal(obj)
}

// statusOf returns the Status that a body is; nil if it is none.
func statusOf(body []byte) *metav1.Status {
	var s metav1.Status
	if err := json.Unmarshal(body, &s); err != nil || s.Kind != "Status" {
		return nil
	}
	return &s
}

// jsonFields is a JSON object whose values are as they were.
type jsonFields map[string]json.RawMessage

// withoutManagedFields takes the managed fields out of an object, of a list's
// items, and of the objects of a table's rows. What it does not know is as it
// was.
func withoutManagedFields(object []byte) []byte {
	if !bytes.Contains(object, []byte(`"managedFields"`)) {
		return object
	}
	var top jsonFields
	if json.Unmarshal(object, &top) != nil {
		return object
	}
	top.dropManagedFields()
	top.each("items", jsonFields.dropManagedFields)
	top.each("rows", func(row jsonFields) { row.within("object", jsonFields.dropManagedFields) })
	return top.encode(object)
}

// dropManagedFields drops those of the object itself.
func (f jsonFields) dropManagedFields() {
	f.within("metadata", func(meta jsonFields) { delete(meta, "managedFields") })
}

// within changes the object that a field is.
func (f jsonFields) within(name string, change func(jsonFields)) {
	var inner jsonFields
	if json.Unmarshal(f[name], &inner) == nil && inner != nil {
		change(inner)
		f[name] = inner.encode(f[name])
	}
}

// each changes the objects of the list that a field is.
func (f jsonFields) each(name string, change func(jsonFields)) {
	var list []jsonFields
	if json.Unmarshal(f[name], &list) != nil || list == nil {
		return
	}
	for _, item := range list {
		if item != nil {
			change(item)
		}
	}
	if encoded, err := json.Marshal(list); err == nil {
		f[name] = encoded
	}
}

// encode returns the object as JSON, or what it was where that fails.
func (f jsonFields) encode(was []byte) []byte {
	if encoded, err := json.Marshal(f); err == nil {
		return encoded
	}
	return was
}
