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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"portico/resource/bodylimit"
	"portico/resource/cbor"
)

// errMediaType reports a body that cannot be converted to JSON.
var errMediaType = errors.New("a body of this media type cannot be converted to JSON")

// sentToJSON converts the body of a request. Kubernetes servers ignore its
// Content-Encoding, so the header must not hide from audit what they store: the body is
// read without it first, and inflated only if that fails. No body is valid both ways.
func sentToJSON(body []byte, h http.Header) ([]byte, error) {
	object, err := formToJSON(body, h.Get("Content-Type"))
	if err == nil || h.Get("Content-Encoding") == "" {
		return object, err
	}
	return responseToJSON(body, h)
}

// responseToJSON converts a recorded body, in the format that the header says, to JSON
// without white space. It fails if the result exceeds maxObject.
func responseToJSON(body []byte, h http.Header) ([]byte, error) {
	body, err := inflate(body, h.Get("Content-Encoding"))
	if err != nil {
		return nil, err
	}
	return formToJSON(body, h.Get("Content-Type"))
}

// formToJSON converts a body of a content type to JSON without white space.
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
	case cbor.IsMediaType(mediaType):
		if _, err = bodylimit.Measure(body, mediaType, bodylimit.Maps); err != nil {
			return nil, err
		}
		if body, err = cbor.ToJSON(body); err != nil {
			return nil, err
		}
	default:
		return nil, errMediaType
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, body); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// mediaTypeOf returns the media type of a content type in lower case; JSON if it is empty.
// Invalid parameters are ignored, as servers ignore them.
func mediaTypeOf(contentType string) string {
	if contentType == "" {
		return runtime.ContentTypeJSON
	}
	bare, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(bare))
}

// inflate undoes the content encoding of a body.
func inflate(body []byte, encoding string) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return body, nil
	case "gzip":
	default:
		return nil, errMediaType
	}
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxObject+1))
	if err == nil && len(plain) > maxObject {
		err = errMediaType
	}
	return plain, err
}

// protobufToJSON converts the built-in kinds. Only their server can decode others.
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

// statusOf returns a body as a Status; nil if it is another kind.
func statusOf(body []byte) *metav1.Status {
	var s metav1.Status
	if err := json.Unmarshal(body, &s); err != nil || s.Kind != "Status" {
		return nil
	}
	return &s
}

// withoutManagedFields removes the managed fields of an object, of a list's items, and of
// the objects of a table's rows. Other JSON is returned unchanged.
func withoutManagedFields(object []byte) []byte {
	if !bytes.Contains(object, []byte(`"managedFields"`)) {
		return object
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber() // keeps the text of numbers
	var top map[string]any
	if decoder.Decode(&top) != nil {
		return object
	}
	remove := func(o any) {
		if fields, ok := o.(map[string]any); ok {
			unstructured.RemoveNestedField(fields, "metadata", "managedFields")
		}
	}
	remove(top)
	items, _ := top["items"].([]any)
	for _, item := range items {
		remove(item)
	}
	rows, _ := top["rows"].([]any)
	for _, row := range rows {
		if fields, ok := row.(map[string]any); ok {
			remove(fields["object"])
		}
	}
	if encoded, err := json.Marshal(top); err == nil {
		return encoded
	}
	return object
}
