package rest

import (
	"reflect"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// ChangesGeneration reports whether an update of old to obj increases metadata.generation.
func (s *Strategy) ChangesGeneration(obj, old Object) bool {
	if !s.TrackGeneration {
		return false
	}
	if s.SpecChanged != nil {
		return s.SpecChanged(obj, old)
	}
	a, aok := obj.(runtime.Unstructured)
	b, bok := old.(runtime.Unstructured)
	if aok && bok {
		return !apiequality.Semantic.DeepEqual(desired(a), desired(b))
	}
	return fieldsChanged(reflect.ValueOf(obj), reflect.ValueOf(old))
}

// desired returns the desired state of an unstructured object.
func desired(u runtime.Unstructured) map[string]any {
	out := map[string]any{}
	for name, value := range u.UnstructuredContent() {
		if !undesired(name) {
			out[name] = value
		}
	}
	return out
}

// undesired reports whether a top-level field is not desired state.
func undesired(name string) bool {
	switch name {
	case "apiVersion", "kind", "metadata", "status":
		return true
	}
	return false
}

// fieldsChanged reports whether two pointers to a struct type differ in other fields than
// TypeMeta (inline, without a JSON name), metadata and status.
func fieldsChanged(a, b reflect.Value) bool {
	a, b = reflect.Indirect(a), reflect.Indirect(b)
	if a.Type() != b.Type() {
		return true
	}
	for i := range a.NumField() {
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		if name == "" || undesired(name) {
			continue
		}
		if !apiequality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return true
		}
	}
	return false
}
