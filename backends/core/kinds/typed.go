package kinds

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
)

// The functions of a rest.Strategy take rest.Object. These adapters let the rules of a kind
// use its Go type. The assertions cannot fail for objects of the kind's own codec.

func onDefault[T rest.Object](f func(obj T)) func(rest.Object) {
	return func(obj rest.Object) { f(obj.(T)) }
}

func onCreate[T rest.Object](f func(obj T)) func(context.Context, rest.Object) {
	return func(_ context.Context, obj rest.Object) { f(obj.(T)) }
}

func onUpdate[T rest.Object](f func(obj, old T)) func(context.Context, rest.Object, rest.Object) {
	return func(_ context.Context, obj, old rest.Object) { f(obj.(T), old.(T)) }
}

func check[T rest.Object](f func(obj T) field.ErrorList) func(context.Context, rest.Object) field.ErrorList {
	return func(_ context.Context, obj rest.Object) field.ErrorList { return f(obj.(T)) }
}

func checkUpdate[T rest.Object](f func(obj, old T) field.ErrorList) func(context.Context, rest.Object, rest.Object) field.ErrorList {
	return func(_ context.Context, obj, old rest.Object) field.ErrorList { return f(obj.(T), old.(T)) }
}

// checkNew validates updates of a kind without rules about changes.
func checkNew[T rest.Object](f func(obj T) field.ErrorList) func(context.Context, rest.Object, rest.Object) field.ErrorList {
	return func(_ context.Context, obj, _ rest.Object) field.ErrorList { return f(obj.(T)) }
}

func changed[T rest.Object](f func(obj, old T) bool) func(obj, old rest.Object) bool {
	return func(obj, old rest.Object) bool { return f(obj.(T), old.(T)) }
}

func warn[T rest.Object](f func(obj T) []string) func(context.Context, rest.Object, rest.Object) []string {
	return func(_ context.Context, obj, _ rest.Object) []string { return f(obj.(T)) }
}

// warnNew adapts a function that warns on create alone.
func warnNew[T rest.Object](f func(obj T) []string) func(context.Context, rest.Object, rest.Object) []string {
	return func(_ context.Context, obj, old rest.Object) []string {
		if old != nil {
			return nil
		}
		return f(obj.(T))
	}
}

// cells adapts a function that returns the cells of an object. An object of another type is an
// error.
func cells[T rest.Object](f func(obj T) []any) func(runtime.Object) ([]any, error) {
	return func(obj runtime.Object) ([]any, error) {
		typed, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("make table row: unexpected type %T", obj)
		}
		return f(typed), nil
	}
}

// fieldsOf adapts a function that returns the selectable fields of an object. An object of
// another type has none.
func fieldsOf[T rest.Object](f func(obj T) map[string]string) func(runtime.Object) map[string]string {
	return func(obj runtime.Object) map[string]string {
		typed, ok := obj.(T)
		if !ok {
			return nil
		}
		return f(typed)
	}
}
