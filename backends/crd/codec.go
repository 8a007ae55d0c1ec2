package crd

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"portico/resource"
	"portico/resource/rest"
)

const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// codec is the Codec of a custom resource in one served version. Its hub form
// is an unstructured object in that version, pruned and with defaults: each
// version is checked against its own schema, and only storage has one version
// for all.
type codec struct {
	// id identifies the codec in resource.Object.Canonical. The codec itself would
	// keep its definition in memory for as long as the object.
	id      *identity
	server  *Server
	serving *serving
	gvk     schema.GroupVersionKind
	storage schema.GroupVersionKind
}

// identity is a comparable identity. It has a size, so that no two have the same
// address.
type identity struct{ _ byte }

var (
	_ rest.CanonicalCodec = (*codec)(nil)
	_ rest.Versioned      = (*codec)(nil)
)

// Decode implements rest.Codec.
func (c *codec) Decode(data []byte, mediaType string, want schema.GroupVersionKind, strict bool) (runtime.Object, []error, error) {
	u := c.decodePrevalidated(data, mediaType, want)
	var strictErrs []error
	if u == nil {
		var err error
		if u, strictErrs, err = c.decodeAny(data, mediaType, want, strict); err != nil {
			return nil, nil, err
		}
	}
	if want == c.gvk || want.GroupKind() != c.gvk.GroupKind() {
		return u, strictErrs, nil
	}
	return u, strictErrs, c.convert(u, c.gvk)
}

// decodeAny decodes a body whose kind is want, and normalizes it.
func (c *codec) decodeAny(data []byte, mediaType string, want schema.GroupVersionKind, strict bool) (*unstructured.Unstructured, []error, error) {
	u, strictErrs, err := c.server.bodies.decode(data, mediaType, want, strict)
	if err != nil {
		return nil, nil, err
	}
	if want.GroupKind() != c.gvk.GroupKind() {
		return u, strictErrs, nil
	}
	s, err := c.server.schemaOf(c.serving, want.Version)
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	unknown, err := s.normalize(u, normalization{unknown: strict})
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
	u := &unstructured.Unstructured{}
	var err error
	if u.Object, err = decodeObject(o.Data); err != nil {
		return nil, fmt.Errorf("decode %s: %w", c.gvk.Kind, err)
	}
	if o.Kind != c.gvk.Kind || o.APIVersion != c.gvk.GroupVersion().String() || !c.Canonical(o) {
		if err := c.read(u); err != nil {
			return nil, fmt.Errorf("decode %s: %w", c.gvk.Kind, err)
		}
	}
	if o.Revision != 0 {
		u.SetResourceVersion(strconv.FormatInt(o.Revision, 10))
	}
	return u, nil
}

// read makes the hub form of stored content. What is stored may be older than
// the schema: it is pruned and defaulted again, by the schema of the version it
// is in and then by that of the hub.
func (c *codec) read(u *unstructured.Unstructured) error {
	in := u.GroupVersionKind()
	if in.GroupKind() != c.gvk.GroupKind() {
		return fmt.Errorf("it is a %s of group %q", in.Kind, in.Group)
	}
	s, err := c.server.schemaOf(c.serving, in.Version)
	if err != nil {
		// The version it was stored in is gone from the definition.
		s, err = c.server.schemaOf(c.serving, c.gvk.Version)
	}
	if err != nil {
		return err
	}
	if _, err := s.normalize(u, normalization{stored: true}); err != nil {
		return err
	}
	if in.Version == c.gvk.Version {
		return nil
	}
	return c.convert(u, c.gvk)
}

// convert puts an object into another version: with conversion strategy None
// that is its apiVersion, and what the other version's schema makes of it.
// Webhooks are not called yet. To go on without them would drop what the other
// version has another name for.
func (c *codec) convert(u *unstructured.Unstructured, to schema.GroupVersionKind) error {
	if conversion := c.serving.outline.Spec.Conversion; conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter {
		// As upstream's errors of conversion, a 500 without a reason.
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: fmt.Sprintf("conversion webhook for %v failed: conversion webhooks are not supported", u.GroupVersionKind()),
		}}
	}
	u.SetGroupVersionKind(to)
	s, err := c.server.schemaOf(c.serving, to.Version)
	if err != nil {
		return err
	}
	_, err = s.normalize(u, normalization{stored: true})
	return err
}

// EncodeStored implements rest.Codec.
func (c *codec) EncodeStored(obj runtime.Object) (*resource.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("encode %s: it is a %T", c.gvk.Kind, obj)
	}
	if c.gvk != c.storage {
		u = u.DeepCopy()
		if err := c.convert(u, c.storage); err != nil {
			return nil, fmt.Errorf("convert %s to %s: %w", c.gvk.Kind, c.storage.GroupVersion(), err)
		}
	}
	data, err := json.Marshal(withoutRevision(u.Object))
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.gvk.Kind, err)
	}
	return resource.Parse(data)
}

// withoutRevision is an object without metadata.resourceVersion. The object
// stays as it is.
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
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("encode %s: it is a %T", gvk.Kind, obj)
	}
	if u.GroupVersionKind() != gvk {
		u = u.DeepCopy()
		if err := c.convert(u, gvk); err != nil {
			return nil, fmt.Errorf("convert %s to %s: %w", gvk.Kind, gvk.GroupVersion(), err)
		}
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
	if gv.Group != c.gvk.Group || !c.serving.outline.knows(gv.Version) {
		return nil, runtime.NewNotRegisteredErrForKind(c.gvk.Group, to)
	}
	if u.GroupVersionKind() == to {
		return u, nil
	}
	// Only the outermost map is copied: nothing else is changed.
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.SetGroupVersionKind(to)
	return out, nil
}

// StrategicMerge implements rest.Codec: custom resources have none.
func (c *codec) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

// bodies decodes request bodies into unstructured objects. Safe for concurrent
// use.
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

// decode decodes a body that is a want, or says nothing about it.
func (b *bodies) decode(data []byte, mediaType string, want schema.GroupVersionKind, strict bool) (*unstructured.Unstructured, []error, error) {
	var decoder *jsonserializer.Serializer
	switch {
	case mediaType == mediaYAML && strict:
		decoder = b.strictYAML
	case mediaType == mediaYAML:
		decoder = b.yaml
	case (mediaType == mediaJSON || mediaType == "") && strict:
		decoder = b.strictJSON
	case mediaType == mediaJSON || mediaType == "":
		decoder = b.json
	default:
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("media type %q cannot be decoded", mediaType))
	}
	obj, gvk, err := decoder.Decode(data, &want, nil)
	var strictErrs []error
	if serr, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		strictErrs, err = serr.Errors(), nil
	}
	if err != nil {
		return nil, nil, rest.DecodeError(err, gvk, want, data)
	}
	if err := rest.ExpectKind(*gvk, want); err != nil {
		return nil, nil, err
	}
	u := obj.(*unstructured.Unstructured)
	if u.Object == nil {
		return nil, nil, rest.DecodeError(fmt.Errorf("it is null"), gvk, want, data)
	}
	u.SetGroupVersionKind(*gvk)
	return u, strictErrs, nil
}
