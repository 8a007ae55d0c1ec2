package custom

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"portico/backends/crd/prevalidate"
	"portico/resource"
	"portico/resource/rest"
)

const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// codec is the Codec of a custom resource in one served version. Its hub form is an
// unstructured object in that version, pruned and with defaults. Each version is checked
// against its own schema; only storage has one version for all.
type codec struct {
	// id identifies the codec in resource.Object.Canonical. The codec itself would keep
	// its definition in memory for as long as the object.
	id      *identity
	kinds   *Kinds
	outline *Outline
	gvk     schema.GroupVersionKind
	storage schema.GroupVersionKind
}

// identity is a comparable identity. It is not empty, so that no two have the same
// address.
type identity struct{ _ byte }

var (
	_ rest.CanonicalCodec = (*codec)(nil)
	_ rest.Versioned      = (*codec)(nil)
	_ rest.Defaulting     = (*codec)(nil)
)

// Decode implements rest.Codec.
func (c *codec) Decode(data []byte, mediaType string, want schema.GroupVersionKind, strict bool) (runtime.Object, []error, error) {
	u := c.decodePrevalidated(data, mediaType, want)
	var strictErrs []error
	if u == nil {
		var err error
		if u, strictErrs, err = c.decodeBody(data, mediaType, want, strict); err != nil {
			return nil, nil, err
		}
	}
	if want == c.gvk || u.GroupVersionKind() != want || want.GroupKind() != c.gvk.GroupKind() {
		return u, strictErrs, nil
	}
	return u, strictErrs, c.convert(c.gvk, u)
}

// Default implements rest.Defaulting.
func (c *codec) Default(obj runtime.Object) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("add defaults of %s: it is a %T", c.gvk.Kind, obj)
	}
	s, err := c.kinds.schema(c.outline, u.GroupVersionKind().Version)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	meta, found, err := objectmeta.GetObjectMeta(u.Object, false)
	if err == nil && found {
		err = objectmeta.SetObjectMeta(u.Object, meta)
	}
	if err != nil {
		return err
	}
	return s.addDefaults(u)
}

// decodePrevalidated decodes a JSON body with the apiVersion and kind want that
// normalize would not change except for defaults, which it adds. nil: the body must be
// decoded and normalized by upstream's packages.
func (c *codec) decodePrevalidated(data []byte, mediaType string, want schema.GroupVersionKind) *unstructured.Unstructured {
	if mediaType != mediaJSON && mediaType != "" || want.GroupKind() != c.gvk.GroupKind() {
		return nil
	}
	s, err := c.kinds.schema(c.outline, want.Version)
	if err != nil {
		return nil
	}
	u := s.decodePrevalidated(data)
	if u == nil || u.GroupVersionKind() != want {
		return nil
	}
	return u
}

// decodePrevalidated is codec.decodePrevalidated for any apiVersion and kind.
func (s *versionSchema) decodePrevalidated(data []byte) *unstructured.Unstructured {
	verdict := s.compiled().CheckForm(data, prevalidate.Body)
	if verdict < prevalidate.LacksDefaults {
		return nil
	}
	object, err := decodeObject(data)
	if err != nil {
		return nil
	}
	u := &unstructured.Unstructured{Object: object}
	if meta, ok := object["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	if verdict == prevalidate.LacksDefaults && s.addDefaults(u) != nil {
		return nil
	}
	return u
}

// decodeBody decodes a body for kind want, and normalizes it by the schema of that.
func (c *codec) decodeBody(data []byte, mediaType string, want schema.GroupVersionKind, strict bool) (*unstructured.Unstructured, []error, error) {
	u, strictErrs, err := c.kinds.bodies.decode(data, mediaType, want, strict)
	if err != nil {
		return nil, nil, err
	}
	if want.GroupKind() != c.gvk.GroupKind() {
		return u, strictErrs, nil
	}
	s, err := c.kinds.schema(c.outline, want.Version)
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	unknown, err := s.normalize(u, normalization{unknown: strict && u.GroupVersionKind() == want})
	if apierrors.IsRequestEntityTooLargeError(err) {
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, rest.DecodeError(err, &want, want, data)
	}
	for _, path := range unknown {
		strictErrs = append(strictErrs, fmt.Errorf(`unknown field "%s"`, path))
	}
	return u, strictErrs, nil
}

// DecodeStored implements rest.Codec.
func (c *codec) DecodeStored(o *resource.Object) (runtime.Object, error) {
	data, foreign := o.Data, o.APIVersion != c.gvk.GroupVersion().String()
	convert := foreign && c.outline.hasWebhook()
	if convert {
		all, err := c.kinds.conversions.of(c, o)
		if err != nil {
			return nil, err
		}
		data = all[0]
	}
	object, err := decodeObject(data)
	u := &unstructured.Unstructured{Object: object}
	if err == nil && !convert && (foreign || o.Kind != c.gvk.Kind || !c.Canonical(o)) {
		err = c.normalizeStored(u)
	}
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", c.gvk.Kind, err)
	}
	if o.Revision != 0 {
		u.SetResourceVersion(strconv.FormatInt(o.Revision, 10))
	}
	return u, nil
}

// Canonical implements rest.CanonicalCodec: it reports whether coercing metadata, pruning
// and defaulting change nothing. The result is kept with the object for each schema, and
// mostly needs no decoding.
func (c *codec) Canonical(o *resource.Object) bool {
	return o.Canonical(c.id, func(o *resource.Object) bool {
		s, err := c.kinds.schema(c.outline, c.gvk.Version)
		if err == nil && o.APIVersion == c.gvk.GroupVersion().String() && s.compiled().CheckForm(o.Data, prevalidate.Stored) >= prevalidate.Canonical {
			return true
		}
		before, err := decodeObject(o.Data)
		if err != nil {
			return false
		}
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(before)}
		return c.normalizeStored(u) == nil && reflect.DeepEqual(before, u.Object)
	})
}

// normalizeStored makes the hub form of stored content, which may be older than the schema:
// it is pruned and defaulted by the schema of the version that it is in, and then converted.
func (c *codec) normalizeStored(u *unstructured.Unstructured) error {
	if err := c.normalizeOwn(u); err != nil || u.GroupVersionKind() == c.gvk {
		return err
	}
	return c.convert(c.gvk, u)
}

// normalizeOwn prunes and defaults stored content by the schema of the version that it is in.
func (c *codec) normalizeOwn(u *unstructured.Unstructured) error {
	in := u.GroupVersionKind()
	if in.GroupKind() != c.gvk.GroupKind() {
		return fmt.Errorf("it is a %s of group %q", in.Kind, in.Group)
	}
	s, err := c.kinds.schema(c.outline, in.Version)
	if err != nil {
		// The definition no longer has that version.
		s, err = c.kinds.schema(c.outline, c.gvk.Version)
	}
	if err != nil {
		return err
	}
	_, err = s.normalize(u, normalization{stored: true})
	return err
}

// convert converts objects to another version: by the conversion webhook of the definition, or
// by setting apiVersion if it has none. They are pruned by the schema of that version, of which
// no defaults are added.
func (c *codec) convert(to schema.GroupVersionKind, all ...*unstructured.Unstructured) error {
	b, err := c.kinds.schemas(c.outline)
	if err != nil {
		return err
	}
	webhook, err := b.converter()
	if err != nil {
		return err
	}
	if webhook != nil {
		if err := webhook.convertTo(to, all...); err != nil {
			return err
		}
	}
	s, err := c.kinds.schema(c.outline, to.Version)
	if err != nil {
		return err
	}
	for _, u := range all {
		u.SetGroupVersionKind(to)
		if _, err := s.coerce(u, normalization{stored: true}); err != nil {
			return err
		}
	}
	return nil
}

// inVersion returns obj in another version of the kind, copied if it is in none or another.
func (c *codec) inVersion(obj runtime.Object, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("encode %s: it is a %T", to.Kind, obj)
	}
	if u.GroupVersionKind() == to {
		return u, nil
	}
	u = u.DeepCopy()
	if err := c.convert(to, u); err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", to.Kind, to.GroupVersion(), err)
	}
	return u, nil
}

// EncodeStored implements rest.Codec.
func (c *codec) EncodeStored(obj runtime.Object) (*resource.Object, error) {
	u, err := c.inVersion(obj, c.storage)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(withoutRevision(u.Object))
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.gvk.Kind, err)
	}
	return resource.Parse(data)
}

// withoutRevision returns an object without metadata.resourceVersion. The object is not
// changed.
func withoutRevision(object map[string]any) map[string]any {
	meta, ok := object["metadata"].(map[string]any)
	if !ok || meta["resourceVersion"] == nil {
		return object
	}
	object, meta = maps.Clone(object), maps.Clone(meta)
	delete(meta, "resourceVersion")
	object["metadata"] = meta
	return object
}

// Encode implements rest.Codec.
func (c *codec) Encode(obj runtime.Object, gvk schema.GroupVersionKind, mediaType string) ([]byte, error) {
	u, err := c.inVersion(obj, gvk)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(u.Object)
	if err == nil && mediaType == mediaYAML {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", gvk.Kind, err)
	}
	return data, nil
}

// decodeObject decodes a JSON object: integers are int64, other numbers float64.
func decodeObject(data []byte) (object map[string]any, err error) {
	err = kjson.UnmarshalCaseSensitivePreserveInts(data, &object)
	return object, err
}

// Hub implements rest.Versioned.
func (c *codec) Hub() schema.GroupVersion { return c.gvk.GroupVersion() }

// ConvertTo implements rest.Versioned.
func (c *codec) ConvertTo(obj runtime.Object, gv schema.GroupVersion) (runtime.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("convert %s: it is a %T", c.gvk.Kind, obj)
	}
	to := gv.WithKind(c.gvk.Kind)
	if gv.Group != c.gvk.Group || c.outline.Version(gv.Version) == nil {
		return nil, runtime.NewNotRegisteredErrForKind(c.gvk.Group, to)
	}
	if u.GroupVersionKind() == to {
		return u, nil
	}
	if c.outline.hasWebhook() {
		b, err := c.kinds.schemas(c.outline)
		if err != nil {
			return nil, err
		}
		webhook, err := b.converter()
		if err != nil {
			return nil, err
		}
		return webhook.convert(u, gv)
	}
	// Only the outermost map is copied: nothing else is changed.
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.SetGroupVersionKind(to)
	return out, nil
}

// StrategicMerge implements rest.Codec: custom resources do not support it.
func (c *codec) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

// bodies decodes request bodies into unstructured objects. Safe for concurrent use.
type bodies struct {
	json, strictJSON, yaml, strictYAML *jsonserializer.Serializer
}

func newBodies() *bodies {
	serializer := func(yaml, strict bool) *jsonserializer.Serializer {
		return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, unstructuredscheme.NewUnstructuredCreator(),
			unstructuredscheme.NewUnstructuredObjectTyper(), jsonserializer.SerializerOptions{Yaml: yaml, Strict: strict})
	}
	return &bodies{
		json: serializer(false, false), strictJSON: serializer(false, true),
		yaml: serializer(true, false), strictYAML: serializer(true, true),
	}
}

// decode decodes a body for kind want. One without a kind is a 400.
func (b *bodies) decode(data []byte, mediaType string, want schema.GroupVersionKind, strict bool) (*unstructured.Unstructured, []error, error) {
	var decoder, strictDecoder *jsonserializer.Serializer
	switch mediaType {
	case mediaYAML:
		decoder, strictDecoder = b.yaml, b.strictYAML
	case mediaJSON, "":
		decoder, strictDecoder = b.json, b.strictJSON
	default:
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("media type %q cannot be decoded", mediaType))
	}
	if strict {
		decoder = strictDecoder
	}
	obj, gvk, err := decoder.Decode(data, &want, &unstructured.Unstructured{})
	var strictErrs []error
	if serr, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		strictErrs, err = serr.Errors(), nil
	}
	if err != nil {
		return nil, nil, rest.DecodeError(err, gvk, want, data)
	}
	return obj.(*unstructured.Unstructured), strictErrs, nil
}
