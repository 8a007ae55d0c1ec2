package handlers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/managedfields"
)

// validate validates the metadata of obj, the next state of old (nil on create), and everything
// else by the strategy. The rules for names and finalizers do not apply to those that are
// stored already. o is obj as it will be stored if the strategy can validate that; nil: it
// cannot.
func (w *write) validate(ctx context.Context, obj, old rest.Object, o *resource.Object) error {
	if w.strategy.ValidatesMetadata {
		entries := obj.GetManagedFields()
		if w.tracker.Recorded(obj) {
			obj.SetManagedFields(nil)
		}
		errs := w.validateKind(ctx, obj, old, o)
		obj.SetManagedFields(entries)
		return w.invalid(obj.GetName(), errs)
	}
	path := field.NewPath("metadata")
	var errs field.ErrorList
	var stored []string
	if old == nil {
		errs = apivalidation.ValidateObjectMetaAccessor(w.unvalidated(obj), w.res.Namespaced, nameRule(w.strategy), path)
	} else {
		stored = old.GetFinalizers()
		errs = apivalidation.ValidateObjectMetaAccessorUpdate(w.unvalidated(obj), old, path)
		if prefix := obj.GetGenerateName(); prefix != "" {
			for _, msg := range content.IsPathSegmentPrefix(prefix) {
				errs = append(errs, field.Invalid(path.Child("generateName"), prefix, msg))
			}
		}
		errs = append(errs, apivalidation.ValidateFinalizers(obj.GetFinalizers(), path.Child("finalizers"))...)
	}
	if !w.res.Strategy.LooseFinalizers {
		errs = append(errs, bareFinalizers(obj.GetFinalizers(), stored, path.Child("finalizers"))...)
	}
	errs = append(errs, w.validateKind(ctx, obj, old, o)...)
	if old == nil && len(errs) == 0 {
		errs = pathSegments(obj, path)
	}
	return w.invalid(obj.GetName(), errs)
}

// validateKind validates everything but metadata.
func (w *write) validateKind(ctx context.Context, obj, old rest.Object, o *resource.Object) field.ErrorList {
	s := w.strategy
	if o != nil {
		if errs, ok := s.Prevalidated(ctx, o, obj, old); ok {
			return errs
		}
	}
	switch {
	case old == nil && s.Validate != nil:
		return s.Validate(ctx, obj)
	case old != nil && s.ValidateUpdate != nil:
		return s.ValidateUpdate(ctx, obj, old)
	}
	return nil
}

// unvalidated returns the metadata of obj that has to be validated.
func (w *write) unvalidated(obj rest.Object) metav1.Object {
	if w.tracker.Recorded(obj) {
		return withoutManagedFields{obj}
	}
	return obj
}

// withoutManagedFields is metadata with managedFields that the tracker has written. Decoding them
// for validation would take longer than everything else.
type withoutManagedFields struct{ metav1.Object }

// GetManagedFields returns nothing.
func (withoutManagedFields) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }

// maxFieldErrors bounds the errors in a response, which contains each twice; a body can have
// a hundred thousand. maxErrorText bounds their text, in bytes: each of the errors of a value
// contains the value.
const (
	maxFieldErrors = 1000
	maxErrorText   = 1 << 20
)

// invalid is the 422 for the errors; nil for none.
func (w *write) invalid(name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	kept, text := 0, 0
	for kept < min(len(errs), maxFieldErrors) && text <= maxErrorText {
		text += len(errs[kept].ErrorBody())
		kept++
	}
	if more := len(errs) - kept; more > 0 {
		errs = append(errs[:kept:kept], &field.Error{
			Type: field.ErrorTypeTooMany, Field: errs[kept].Field, BadValue: more, Detail: "further errors are omitted",
		})
	}
	return apierrors.NewInvalid(w.res.GroupKind(), name, errs)
}

// nameRule returns the rule for names of a kind.
func nameRule(s *rest.Strategy) apivalidation.ValidateNameFunc {
	if s.ValidateName == nil {
		return apivalidation.NameIsDNSSubdomain
	}
	return s.ValidateName
}

// pathSegments requires of a new object that is valid otherwise that its name is one path
// segment, so that it cannot reach the storage path of another object.
func pathSegments(obj metav1.Object, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range content.IsPathSegmentPrefix(obj.GetGenerateName()) {
		errs = append(errs, field.Invalid(path.Child("generateName"), obj.GetGenerateName(), msg))
	}
	for _, msg := range content.IsPathSegmentName(obj.GetName()) {
		errs = append(errs, field.Invalid(path.Child("name"), obj.GetName(), msg))
	}
	return errs
}

// checkKey is the 400 for a name or namespace in the URL that is not one path segment.
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

// bareFinalizers returns errors for new finalizers that are neither standard nor qualified
// with a domain.
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

// Bounds of lists and maps in metadata, each member of which is validated, tracked and
// indexed. Annotations are bounded by their size (256 KiB, as upstream).
const (
	maxLabels     = 1000
	maxFinalizers = 1000
	// maxOwnerReferences is higher because a shared object, such as a Secret, has one for
	// each user. This many fill an object of the largest size.
	maxOwnerReferences = 5000
	// maxManagers bounds the entries of managedFields.
	maxManagers = managedfields.MaxEntries
)

// metadataCounts are the lengths of the bounded lists and maps.
type metadataCounts struct{ labels, finalizers, ownerReferences, managedFields int }

func countMetadata(obj rest.Object) metadataCounts {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return metadataCounts{len(obj.GetLabels()), len(obj.GetFinalizers()), len(obj.GetOwnerReferences()), len(obj.GetManagedFields())}
	}
	// The accessors of unstructured objects copy.
	meta, _ := u.Object["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	list := func(name string) int {
		items, _ := meta[name].([]any)
		return len(items)
	}
	return metadataCounts{len(labels), list("finalizers"), list("ownerReferences"), list("managedFields")}
}

// growsMetadata returns an error for each list or map in the metadata of obj that exceeds its
// bound and is larger than in old (nil on create). So an object that exceeds a bound can
// still be changed otherwise.
func growsMetadata(obj, old rest.Object) field.ErrorList {
	now, before := countMetadata(obj), metadataCounts{}
	if old != nil {
		before = countMetadata(old)
	}
	var errs field.ErrorList
	check := func(name string, now, before, most int) {
		if now > most && now > before {
			errs = append(errs, field.TooMany(field.NewPath("metadata", name), now, max(before, most)))
		}
	}
	check("labels", now.labels, before.labels, maxLabels)
	check("finalizers", now.finalizers, before.finalizers, maxFinalizers)
	check("ownerReferences", now.ownerReferences, before.ownerReferences, maxOwnerReferences)
	check("managedFields", now.managedFields, before.managedFields, maxManagers)
	return errs
}
