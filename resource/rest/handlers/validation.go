package handlers

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// validateNew checks a new object: its metadata, then everything else by the
// strategy. o is the result of encodeToPrevalidate.
func (w *write) validateNew(ctx context.Context, obj rest.Object, o *resource.Object) error {
	path := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(w.unvalidated(obj), w.res.Namespaced, nameRule(w.strategy), path)
	if !w.strategy.LooseFinalizers {
		errs = append(errs, bareFinalizers(obj.GetFinalizers(), nil, path.Child("finalizers"))...)
	}
	if found, ok := w.prevalidated(ctx, o, obj, nil); ok {
		errs = append(errs, found...)
	} else if w.strategy.Validate != nil {
		errs = append(errs, w.strategy.Validate(ctx, obj)...)
	}
	return w.invalid(obj.GetName(), errs)
}

// unvalidated is the metadata of obj that has to be validated.
func (w *write) unvalidated(obj rest.Object) metav1.Object {
	if w.tracker.Recorded(obj) {
		return withoutManagedFields{obj}
	}
	return obj
}

// withoutManagedFields is metadata whose managedFields need no validation: decoding
// them takes longer than everything else.
type withoutManagedFields struct{ metav1.Object }

// GetManagedFields returns nothing.
func (withoutManagedFields) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }

// validateChange checks an update. A name or finalizer that is stored already
// may break rules that are younger than it.
func (w *write) validateChange(ctx context.Context, obj, old rest.Object, o *resource.Object) error {
	path := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(w.unvalidated(obj), old, path)
	if prefix := obj.GetGenerateName(); prefix != "" {
		for _, msg := range content.IsPathSegmentPrefix(prefix) {
			errs = append(errs, field.Invalid(path.Child("generateName"), prefix, msg))
		}
	}
	errs = append(errs, apivalidation.ValidateFinalizers(obj.GetFinalizers(), path.Child("finalizers"))...)
	if !w.res.Strategy.LooseFinalizers {
		errs = append(errs, bareFinalizers(obj.GetFinalizers(), old.GetFinalizers(), path.Child("finalizers"))...)
	}
	if found, ok := w.prevalidated(ctx, o, obj, old); ok {
		errs = append(errs, found...)
	} else if w.strategy.ValidateUpdate != nil {
		errs = append(errs, w.strategy.ValidateUpdate(ctx, obj, old)...)
	}
	return w.invalid(obj.GetName(), errs)
}

// encodeToPrevalidate encodes the object before it is validated if the strategy can
// validate the encoded form; otherwise it returns nil.
func (w *write) encodeToPrevalidate(obj rest.Object) (*resource.Object, error) {
	if w.strategy.Prevalidated == nil {
		return nil, nil
	}
	return w.encode(obj)
}

// prevalidated calls the strategy's hook of that name.
func (w *write) prevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object) (errs field.ErrorList, ok bool) {
	if o == nil {
		return nil, false
	}
	return w.strategy.Prevalidated(ctx, o, obj, old)
}

// maxFieldErrors bounds the errors in a response, which has each twice; a body can have a
// hundred thousand.
const maxFieldErrors = 1000

// invalid is the 422 for the errors; nil for none.
func (w *write) invalid(name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	if more := len(errs) - maxFieldErrors; more > 0 {
		next := errs[maxFieldErrors].Field
		errs = append(errs[:maxFieldErrors:maxFieldErrors], &field.Error{
			Type: field.ErrorTypeTooMany, Field: next, BadValue: more, Detail: "the errors from here on are left out",
		})
	}
	return apierrors.NewInvalid(w.res.GroupKind(), name, errs)
}

// nameRule is the kind's rule for names upon the floor for every kind: a name
// is one path segment, so that no name reaches another object's storage path.
func nameRule(s *rest.Strategy) apivalidation.ValidateNameFunc {
	own := s.ValidateName
	if own == nil {
		own = apivalidation.NameIsDNSSubdomain
	}
	return func(name string, prefix bool) []string {
		if msgs := own(name, prefix); len(msgs) > 0 {
			return msgs
		}
		if prefix {
			return content.IsPathSegmentPrefix(name)
		}
		return content.IsPathSegmentName(name)
	}
}

// checkKey is the 400 for a name or namespace in the URL that cannot be one
// path segment.
func checkKey(key resource.Key) error {
	if key.Namespace != "" {
		if msgs := content.IsPathSegmentName(key.Namespace); len(msgs) > 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("Namespace parameter invalid: %q: %s", key.Namespace, strings.Join(msgs, ";")))
		}
	}
	if msgs := content.IsPathSegmentName(key.Name); len(msgs) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", key.Name, strings.Join(msgs, ";")))
	}
	return nil
}

// bareFinalizers refuses new finalizers without a domain, except the standard
// ones.
func bareFinalizers(finalizers, old []string, path *field.Path) field.ErrorList {
	standard := []string{"kubernetes", metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
	var errs field.ErrorList
	for i, name := range finalizers {
		if strings.Contains(name, "/") || slices.Contains(standard, name) || slices.Contains(old, name) {
			continue
		}
		errs = append(errs, field.Invalid(path.Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
	}
	return errs
}

// specChanged reports whether the strategy sees a new generation in obj.
func specChanged(s *rest.Strategy, obj, old rest.Object) bool {
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

// desired is an unstructured object without what is not desired state.
func desired(u runtime.Unstructured) map[string]any {
	out := map[string]any{}
	for name, value := range u.UnstructuredContent() {
		if !undesired(name) {
			out[name] = value
		}
	}
	return out
}

// undesired reports whether a top-level field is no desired state.
func undesired(name string) bool {
	switch name {
	case "apiVersion", "kind", "metadata", "status":
		return true
	}
	return false
}

// fieldsChanged compares two pointers to the same struct type, without
// TypeMeta (inline, so without a JSON name), metadata and status.
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
