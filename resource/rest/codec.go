package rest

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// Media types of bodies.
const (
	contentJSON     = "application/json"
	contentYAML     = "application/yaml"
	contentProtobuf = "application/vnd.kubernetes.protobuf"
)

// Decode decodes stored bytes into the kind's hub form, for followers and
// controllers. It is a StoreReadError when the bytes cannot be decoded.
func (k *Kind) Decode(o *resource.Object) (Object, error) {
	obj, err := k.decodeStored(o)
	if err != nil {
		return nil, err
	}
	typed, ok := obj.(Object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("decode %s: %T has no metadata", k.GroupResource(), obj))
	}
	return typed, nil
}

// decodeStored is Codec.DecodeStored with the error that clients shall see.
func (k *Kind) decodeStored(o *resource.Object) (runtime.Object, error) {
	obj, err := k.Codec.DecodeStored(o)
	if err != nil {
		return nil, storeReadError(k, o, err)
	}
	return obj, nil
}

// typed reports whether the kind is made of Go types in that version. Typed
// kinds have a protobuf form, and their items in JSON lists carry no apiVersion
// and kind; custom resources are the other way round (docs/wire.md 3.1, 3.2).
func (k *Kind) typed(version string) bool {
	return k.Codec.StrategicMerge(k.GVK(version)) != nil
}

// protobuf reports whether the codec can encode gvk as protobuf.
func protobufForm(c Codec, gvk schema.GroupVersionKind) bool {
	return hasProtobuf(c.StrategicMerge(gvk))
}

// hasProtobuf reports whether the object's type has a protobuf form.
func hasProtobuf(obj runtime.Object) bool {
	_, ok := obj.(runtime.ProtobufMarshaller)
	return ok
}

// storeReadError is the 500 for an object whose stored bytes cannot be read
// (docs/wire.md 4.6), unless the codec says which Status it is to be.
func storeReadError(k *Kind, o *resource.Object, err error) error {
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
