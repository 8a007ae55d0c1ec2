package rest

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
)

// Codec converts the objects of one kind between bytes and the hub form, the decoded form
// that strategies and admission see. Typed is the Codec of Go types of a scheme; the CRD
// server has its own. Implementations are safe for concurrent use.
type Codec interface {
	// Decode decodes a request body in any version that the codec knows into the hub form.
	// Into a Go type, defaultGVK applies where the body has no apiVersion or kind, and a body
	// of another group, version or kind is a BadRequest; other objects need a kind, and keep
	// the apiVersion and kind of the body (docs/wire.md 4.1). With strict, unknown and
	// duplicate fields are returned in strictErrs.
	Decode(data []byte, mediaType string, defaultGVK schema.GroupVersionKind, strict bool) (obj runtime.Object, strictErrs []error, err error)
	// DecodeStored decodes stored bytes into the hub form and sets resourceVersion.
	DecodeStored(o *resource.Object) (runtime.Object, error)
	// EncodeStored encodes a hub form into the bytes to store, without resourceVersion.
	EncodeStored(obj runtime.Object) (*resource.Object, error)
	// Encode encodes a hub form as the version gvk in the media type
	// (application/json, application/yaml, application/vnd.kubernetes.protobuf).
	Encode(obj runtime.Object, gvk schema.GroupVersionKind, mediaType string) ([]byte, error)
	// StrategicMerge returns an empty Go struct of gvk, with the merge keys of strategic
	// merge patches in its tags; nil: the kind is not made of Go types.
	StrategicMerge(gvk schema.GroupVersionKind) runtime.Object
}

// Versioned is a Codec that also converts decoded objects. Field ownership
// (Kind.Ownership) requires it: each entry of managedFields has its own version.
type Versioned interface {
	Codec
	// Hub returns the group and version of the hub form.
	Hub() schema.GroupVersion
	// ConvertTo returns obj in the group and version gv of the kind, apiVersion and kind
	// set. obj is the hub form, a result of ConvertTo, or an unstructured object in the
	// version of its apiVersion, possibly without any other field. Nothing is pruned or
	// defaulted. obj is not changed; the result may share memory with it. The error for an
	// unknown version satisfies runtime.IsNotRegisteredError without unwrapping.
	ConvertTo(obj runtime.Object, gv schema.GroupVersion) (runtime.Object, error)
}

// CanonicalCodec is a Codec that prunes and defaults on reading, so that readers may need
// other bytes than the stored ones.
type CanonicalCodec interface {
	Codec
	// Canonical reports whether stored bytes of the requested version can be sent
	// unchanged; others are decoded and encoded. It is called on every read and must be
	// cheap. It must not change o.
	Canonical(o *resource.Object) bool
}

// Defaulting is a Codec that adds defaults when it decodes.
type Defaulting interface {
	Codec
	// Default adds the defaults of its version to an object that is not decoded from a body: the result of an
	// apply patch in the hub form, or of an admission webhook in any version. Malformed metadata is an error.
	Default(obj runtime.Object) error
}

// Decode decodes a stored object into the kind's hub form. The error is a StatusError, a
// StoreReadError unless the codec returns another one.
func (k *Kind) Decode(o *resource.Object) (Object, error) {
	decoded, err := k.Codec.DecodeStored(o)
	if err != nil {
		return nil, k.StoreReadError(o, err)
	}
	obj, ok := decoded.(Object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("decode %s: %T has no metadata", k.GroupResource(), decoded))
	}
	return obj, nil
}

// StoreReadError is the 500 for a stored object that cannot be decoded (docs/wire.md 4.6).
// An err that is a StatusError is returned as it is.
func (k *Kind) StoreReadError(o *resource.Object, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	gr := k.GroupResource()
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonStoreReadError,
		Message: fmt.Sprintf("stored object %q of %s cannot be decoded: %v", o.Key(), gr, err),
		Details: &metav1.StatusDetails{Name: o.Name, Group: gr.Group, Kind: gr.Resource},
	}}
}

// HasGoType reports whether the kind is a Go type in that version. Such kinds have a
// protobuf form and strategic merge patches, and their items in JSON lists have no
// apiVersion and kind; custom resources differ in all three (docs/wire.md 3.1, 3.2).
func (k *Kind) HasGoType(version string) bool {
	return k.Codec.StrategicMerge(k.GVK(version)) != nil
}

// PatchTypes returns the media types of patches that a version of the kind accepts.
// Strategic merge needs Go types, apply needs field ownership.
func (k *Kind) PatchTypes(version string) []string {
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if k.HasGoType(version) {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	if k.Ownership != nil {
		accepted = append(accepted, string(types.ApplyYAMLPatchType))
	}
	return accepted
}

// PatchTypes is Kind.PatchTypes for a subresource of k. One of another kind (Projection)
// accepts the patches that both kinds accept.
func (s *Subresource) PatchTypes(k *Kind, version string) []string {
	accepted := k.PatchTypes(version)
	if s.Projection == nil {
		return accepted
	}
	projected := *s.Projection.Kind
	if s.Projection.Paths == nil {
		projected.Ownership = nil
	}
	of := projected.PatchTypes(projected.Versions[0])
	return slices.DeleteFunc(accepted, func(t string) bool { return !slices.Contains(of, t) })
}

// hasProtobuf reports whether the type of obj has a protobuf form.
func hasProtobuf(obj runtime.Object) bool {
	_, ok := obj.(runtime.ProtobufMarshaller)
	return ok
}

// hasRaw reports whether a value of type t can contain a RawExtension. seen has the types that were
// searched.
func hasRaw(t reflect.Type, seen map[reflect.Type]bool) bool {
	switch {
	case t == reflect.TypeFor[runtime.RawExtension]():
		return true
	case seen[t]:
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return hasRaw(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if hasRaw(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
