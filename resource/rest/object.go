package rest

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"portico/resource"
)

// Object is a decoded object with its metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// GetObject reads an object. Errors: those of Store.Get; an internal error for one that does not
// decode.
func GetObject[T Object](ctx context.Context, r *Resource, key resource.Key, at resource.At) (T, error) {
	o, err := r.Store.Get(ctx, key, at)
	if err != nil {
		return *new(T), err
	}
	return DecodeAs[T](r.Kind, o)
}

// ListObjects reads the objects that opts select, all of them at once. One that does not decode
// is an error.
func ListObjects[T Object](ctx context.Context, r *Resource, opts resource.ListOptions) ([]T, error) {
	list, err := r.Store.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(list.Items))
	for i, o := range list.Items {
		if out[i], err = DecodeAs[T](r.Kind, o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Modify reads an object, changes it and stores it, repeating this on conflicts. It is for
// controllers: strategies and admission are not called. change must not keep obj. Errors:
// NotFound; errors of change.
func Modify[T Object](ctx context.Context, r *Resource, key resource.Key, change func(obj T) error) (T, error) {
	var none T
	o, err := r.Store.Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		if cur == nil {
			return resource.Mutation{}, apierrors.NewNotFound(r.GroupResource(), key.Name)
		}
		obj, err := DecodeAs[T](r.Kind, cur)
		if err != nil {
			return resource.Mutation{}, err
		}
		if err := change(obj); err != nil {
			return resource.Mutation{}, err
		}
		next, err := r.Codec.EncodeStored(obj)
		return resource.Mutation{Object: next}, err
	})
	if err != nil {
		return none, err
	}
	return DecodeAs[T](r.Kind, o)
}

// CreateObject stores a new object and sets its uid and creationTimestamp in obj. It is for
// controllers: strategies and admission are not called. Errors: AlreadyExists.
func CreateObject[T Object](ctx context.Context, r *Resource, obj T) (T, error) {
	var none T
	FillSystemMetadata(obj, r.Strategy.TrackGeneration)
	o, err := r.Codec.EncodeStored(obj)
	if err != nil {
		return none, fmt.Errorf("encode %s %s: %w", r.GroupResource(), obj.GetName(), err)
	}
	key := resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	stored, err := r.Store.Create(ctx, key, o, 0)
	if err != nil {
		return none, err
	}
	return DecodeAs[T](r.Kind, stored)
}

// DecodeAs decodes a stored object of a kind with Go type T.
func DecodeAs[T Object](k *Kind, o *resource.Object) (T, error) {
	var none T
	obj, err := k.Decode(o)
	if err != nil {
		return none, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, apierrors.NewInternalError(fmt.Errorf("object %s is a %T, not a %T", o.Key(), obj, none))
	}
	return typed, nil
}

// Now returns the current time as metadata has it: UTC, in whole seconds.
func Now() metav1.Time { return metav1.NewTime(time.Now().UTC().Truncate(time.Second)) }

// WipeSystemMetadata clears the metadata that only the server sets.
func WipeSystemMetadata(obj metav1.Object) {
	obj.SetUID("")
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// FillSystemMetadata replaces the metadata that only the server sets with that of a new
// object.
func FillSystemMetadata(obj metav1.Object, trackGeneration bool) {
	WipeSystemMetadata(obj)
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(Now())
	if trackGeneration {
		obj.SetGeneration(1)
	}
}
