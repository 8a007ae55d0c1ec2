package rest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"portico/resource"
)

// ConvertFunc converts an object to another version of its kind. It must not change in.
type ConvertFunc func(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, error)

// typed is the Codec of Go types of a scheme. The hub form is the Go type of the storage
// version with apiVersion and kind set.
type typed struct {
	scheme   *runtime.Scheme
	storage  schema.GroupVersionKind
	encoding resource.Encoding
	convert  ConvertFunc

	json, strictJSON *jsonserializer.Serializer
	yaml, strictYAML *jsonserializer.Serializer
	protobuf         *protobuf.Serializer
	// defaultStored sets the defaults of their version in objects that are stored in another one than storage.
	defaultStored bool
	// raw reports whether objects can have a RawExtension.
	raw bool
}

// Typed returns the Codec of a kind that is a Go type of the scheme. Objects are stored in
// the version storage, as protobuf if the type supports it, otherwise as JSON. Other
// versions must have the same JSON fields. It panics if the scheme does not have storage.
func Typed(scheme *runtime.Scheme, storage schema.GroupVersionKind) Codec {
	return TypedConverted(scheme, storage, nil)
}

// TypedConverted is Typed for a kind with versions of different fields: convert
// converts from the storage version to the others and back. nil means ConvertByFields.
func TypedConverted(scheme *runtime.Scheme, storage schema.GroupVersionKind, convert ConvertFunc) Codec {
	c := newTyped(scheme, storage, convert)
	if obj, err := scheme.New(storage); err == nil && hasProtobuf(obj) {
		c.encoding = resource.Protobuf
	}
	return c
}

// TypedDefaulted is TypedConverted for a scheme with defaults: an object that is stored in another version than storage
// gets the defaults of its version when it is read.
func TypedDefaulted(scheme *runtime.Scheme, storage schema.GroupVersionKind, convert ConvertFunc) Codec {
	c := TypedConverted(scheme, storage, convert).(*typed)
	c.defaultStored = true
	return c
}

// TypedJSON is TypedConverted for a kind that is stored as JSON.
func TypedJSON(scheme *runtime.Scheme, storage schema.GroupVersionKind, convert ConvertFunc) Codec {
	return newTyped(scheme, storage, convert)
}

func newTyped(scheme *runtime.Scheme, storage schema.GroupVersionKind, convert ConvertFunc) *typed {
	if !scheme.Recognizes(storage) {
		panic(fmt.Sprintf("rest: %s is not registered in the scheme", storage))
	}
	serializer := func(yaml, strict bool) *jsonserializer.Serializer {
		return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme,
			jsonserializer.SerializerOptions{Yaml: yaml, Strict: strict})
	}
	c := &typed{
		scheme:     scheme,
		storage:    storage,
		encoding:   resource.JSON,
		convert:    convert,
		json:       serializer(false, false),
		strictJSON: serializer(false, true),
		yaml:       serializer(true, false),
		strictYAML: serializer(true, true),
		protobuf:   protobuf.NewSerializer(scheme, scheme),
	}
	if c.convert == nil {
		c.convert = ConvertByFields(scheme)
	}
	if obj, err := scheme.New(storage); err == nil {
		c.raw = hasRaw(reflect.TypeOf(obj), map[reflect.Type]bool{})
	}
	return c
}

// Decode implements Codec.
func (c *typed) Decode(data []byte, mediaType string, defaultGVK schema.GroupVersionKind, strict bool) (runtime.Object, []error, error) {
	decoder, err := c.decoder(mediaType, strict)
	if err != nil {
		return nil, nil, err
	}
	obj, gvk, err := decoder.Decode(data, &defaultGVK, nil)
	var strictErrs []error
	if serr, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		strictErrs, err = serr.Errors(), nil
	}
	if err != nil {
		return nil, nil, DecodeError(err, gvk, defaultGVK, data)
	}
	if err := ExpectKind(*gvk, defaultGVK); err != nil {
		return nil, nil, err
	}
	if c.raw && mediaType == runtime.ContentTypeProtobuf {
		// The decoder does not check that the bytes of a RawExtension are JSON.
		if err := c.json.Encode(obj, io.Discard); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: a field is not JSON: %v",
				gvk.Kind, gvk.GroupVersion(), gvk.Kind, err))
		}
	}
	obj, err = c.toHub(obj, *gvk)
	if err != nil {
		return nil, nil, DecodeError(err, gvk, defaultGVK, data)
	}
	return obj, strictErrs, nil
}

func (c *typed) decoder(mediaType string, strict bool) (runtime.Decoder, error) {
	switch mediaType {
	case runtime.ContentTypeJSON, "":
		if strict {
			return c.strictJSON, nil
		}
		return c.json, nil
	case runtime.ContentTypeYAML:
		if strict {
			return c.strictYAML, nil
		}
		return c.yaml, nil
	case runtime.ContentTypeProtobuf:
		if obj, err := c.scheme.New(c.storage); err == nil && !hasProtobuf(obj) {
			return nil, resource.UnsupportedMediaType([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
		}
		return c.protobuf, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("media type %q cannot be decoded", mediaType))
}

// toHub converts a decoded object to the storage version. Objects of another kind (bodies
// of subresources) are not converted.
func (c *typed) toHub(obj runtime.Object, gvk schema.GroupVersionKind) (runtime.Object, error) {
	if gvk.Kind != c.storage.Kind {
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		return obj, nil
	}
	if gvk != c.storage {
		converted, err := c.convert(obj, c.storage)
		if err != nil {
			return nil, fmt.Errorf("convert %s to %s: %w", gvk.GroupVersion(), c.storage.GroupVersion(), err)
		}
		obj = converted
	}
	obj.GetObjectKind().SetGroupVersionKind(c.storage)
	return obj, nil
}

// DecodeStored implements Codec.
func (c *typed) DecodeStored(o *resource.Object) (runtime.Object, error) {
	var decoder runtime.Decoder = c.json
	if o.Encoding == resource.Protobuf {
		decoder = c.protobuf
	}
	obj, gvk, err := decoder.Decode(o.Data, &c.storage, nil)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", c.storage.Kind, err)
	}
	if c.defaultStored && *gvk != c.storage {
		c.scheme.Default(obj)
	}
	if obj, err = c.toHub(obj, *gvk); err != nil {
		return nil, err
	}
	if o.Revision != 0 {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", c.storage.Kind, err)
		}
		m.SetResourceVersion(strconv.FormatInt(o.Revision, 10))
	}
	return obj, nil
}

// EncodeStored implements Codec.
func (c *typed) EncodeStored(obj runtime.Object) (*resource.Object, error) {
	obj = withKind(obj, c.storage)
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.storage.Kind, err)
	}
	m.SetResourceVersion("")
	var encoder runtime.Encoder = c.json
	if c.encoding == resource.Protobuf {
		encoder = c.protobuf
	}
	data, err := encodeWith(encoder, obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.storage.Kind, err)
	}
	return resource.Parse(data)
}

// Encode implements Codec.
func (c *typed) Encode(obj runtime.Object, gvk schema.GroupVersionKind, mediaType string) ([]byte, error) {
	if gvk.Kind == c.storage.Kind && gvk != c.storage {
		converted, err := c.convert(obj, gvk)
		if err != nil {
			return nil, fmt.Errorf("convert %s to %s: %w", gvk.Kind, gvk.GroupVersion(), err)
		}
		obj = converted
	}
	obj = withKind(obj, gvk)
	var encoder runtime.Encoder
	switch mediaType {
	case runtime.ContentTypeYAML:
		encoder = c.yaml
	case runtime.ContentTypeProtobuf:
		encoder = c.protobuf
	default:
		encoder = c.json
	}
	data, err := encodeWith(encoder, obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", gvk.Kind, err)
	}
	return data, nil
}

// Hub implements Versioned.
func (c *typed) Hub() schema.GroupVersion { return c.storage.GroupVersion() }

// ConvertTo implements Versioned.
func (c *typed) ConvertTo(obj runtime.Object, gv schema.GroupVersion) (runtime.Object, error) {
	from := obj.GetObjectKind().GroupVersionKind()
	to := gv.WithKind(c.storage.Kind)
	if !c.scheme.Recognizes(to) {
		return nil, runtime.NewNotRegisteredErrForKind(c.scheme.Name(), to)
	}
	if u, ok := obj.(runtime.Unstructured); ok {
		typed, err := c.scheme.New(from)
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), typed); err != nil {
			return nil, err
		}
		obj = typed
	}
	for _, next := range [...]schema.GroupVersionKind{c.storage, to} {
		if from == to || from == next {
			continue
		}
		converted, err := c.convert(obj, next)
		if err != nil {
			return nil, fmt.Errorf("convert %s to %s: %w", from.GroupVersion(), next.GroupVersion(), err)
		}
		obj, from = converted, next
	}
	return withKind(obj, to), nil
}

// StrategicMerge implements Codec.
func (c *typed) StrategicMerge(gvk schema.GroupVersionKind) runtime.Object {
	obj, err := c.scheme.New(gvk)
	if err != nil {
		return nil
	}
	return obj
}

// ConvertByFields returns the ConvertFunc of versions that have the same JSON fields. The result
// shares no memory with the object unless both have the same Go type.
func ConvertByFields(scheme *runtime.Scheme) ConvertFunc {
	return func(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
		out, err := scheme.New(to)
		if err != nil {
			return nil, err
		}
		if reflect.TypeOf(in) == reflect.TypeOf(out) {
			return withKind(in, to), nil
		}
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, out); err != nil {
			return nil, err
		}
		out.GetObjectKind().SetGroupVersionKind(to)
		return out, nil
	}
}

// withKind returns a shallow copy of obj with that apiVersion and kind, so that objects
// shared by goroutines can be encoded. Only fields of the struct itself may be set in it.
func withKind(obj runtime.Object, gvk schema.GroupVersionKind) runtime.Object {
	v := reflect.ValueOf(obj)
	if _, ok := obj.(runtime.Unstructured); ok || v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		obj = obj.DeepCopyObject()
	} else {
		c := reflect.New(v.Elem().Type())
		c.Elem().Set(v.Elem())
		obj = c.Interface().(runtime.Object)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

// encodeWith encodes obj without the line feed that the JSON serializer appends.
func encodeWith(encoder runtime.Encoder, obj runtime.Object) ([]byte, error) {
	var buf bytes.Buffer
	if err := encoder.Encode(obj, &buf); err != nil {
		return nil, err
	}
	data := buf.Bytes()
	if n := len(data); n > 1 && data[n-1] == '\n' && data[0] == '{' {
		data = data[:n-1]
	}
	return data, nil
}

// ExpectKind checks a body's group, version and kind (docs/wire.md 4.1).
func ExpectKind(got, want schema.GroupVersionKind) error {
	if want.Empty() {
		return nil
	}
	if err := ExpectVersion(got.GroupVersion(), want.GroupVersion()); err != nil {
		return err
	}
	if got.Kind != want.Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", got.Kind, got.Version, want.Kind))
	}
	return nil
}

// ExpectVersion is the 400 for a body of another group or version.
func ExpectVersion(got, want schema.GroupVersion) error {
	if got == want {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got, want))
}

// DecodeError is the 400 for a body that cannot be decoded.
func DecodeError(err error, got *schema.GroupVersionKind, want schema.GroupVersionKind, body []byte) error {
	if runtime.IsMissingKind(err) {
		err = runtime.NewMissingKindErr(resource.CutText(string(body), quotedBody)) // not the whole body
	}
	if got != nil && got.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, excerpt(body)))
}

// quotedBody is how much of a body an error message has, in bytes.
const quotedBody = 30

// excerpt returns the first bytes of a body for an error message.
func excerpt(body []byte) string {
	if len(body) == 0 {
		return "<empty>"
	}
	text, more := body, ""
	if len(body) > quotedBody {
		text, more = body[:quotedBody], " ..."
	}
	if body[0] == '{' {
		return string(text) + more
	}
	return hex.EncodeToString(text) + more
}
