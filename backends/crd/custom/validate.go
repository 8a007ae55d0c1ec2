package custom

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/warning"

	"portico/backends/crd/prevalidate"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/serve/filter"
)

// validate validates a new object, except its metadata, which rest validates.
func (c *custom) validate(ctx context.Context, obj rest.Object) field.ErrorList {
	s, v, errs := c.validators()
	if errs != nil {
		return errs
	}
	object := content(obj)
	errs, ok := v.object.create(ctx, nil, object)
	if !ok {
		return errs
	}
	errs = append(errs, c.validateScale(object, true)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, object, s.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	return validateRules(ctx, s, v, errs, object, nil)
}

// validateUpdate validates a changed object. Errors of values that did not change are
// ignored (ratcheting).
func (c *custom) validateUpdate(ctx context.Context, obj, old rest.Object) field.ErrorList {
	s, v, errs := c.validators()
	if errs != nil {
		return errs
	}
	object, was := content(obj), content(old)
	unchanged := correlate(s, object, was)
	errs, ok := v.object.update(ctx, nil, object, was, unchanged)
	if !ok {
		return unlessUnchanged(errs, obj, old)
	}
	errs = append(errs, c.validateScale(object, true)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, object, s.structural, false)...)
	errs = append(errs, validateLists(s, object, was)...)
	errs = validateRules(ctx, s, v, errs, object, was, cel.WithRatcheting(unchanged))
	validation.Metrics.ObserveRatchetingTime(*unchanged.Duration)
	return errs
}

// validateStatus validates an update of the status.
func (c *custom) validateStatus(ctx context.Context, obj, old rest.Object) field.ErrorList {
	s, v, errs := c.validators()
	if errs != nil {
		return errs
	}
	object, was := content(obj), content(old)
	unchanged := correlate(s, object, was)
	if status, ok := object["status"]; ok && v.status != nil {
		if errs, ok = v.status.update(ctx, field.NewPath("status"), status, was["status"], unchanged.Key("status")); !ok {
			return unlessUnchanged(errs, obj, old)
		}
	}
	errs = append(errs, c.validateScale(object, false)...)
	errs = append(errs, validateLists(s, object, was)...)
	errs = validateRules(ctx, s, v, errs, object, was, cel.WithRatcheting(unchanged))
	validation.Metrics.ObserveRatchetingTime(*unchanged.Duration)
	return errs
}

// unlessUnchanged returns the errors of an object that was not validated completely; nil if
// only its metadata changes: an object that was stored before such errors can be relabeled
// and deleted.
func unlessUnchanged(errs field.ErrorList, obj, old rest.Object) field.ErrorList {
	if !changedOutsideMetadata(obj, old) {
		return nil
	}
	return errs
}

func (c *custom) validators() (*versionSchema, *validators, field.ErrorList) {
	s, err := c.kinds.schema(c.outline, c.version.Name)
	if err != nil {
		return nil, nil, internalError(err)
	}
	v, err := s.validators()
	if err != nil {
		return nil, nil, internalError(err)
	}
	return s, v, nil
}

// prevalidated implements rest.Strategy.Prevalidated: of an object with valid bytes,
// only the scale fields and the CEL rules are checked, which need its values.
func (c *custom) prevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object) (field.ErrorList, bool) {
	return c.checkPrevalidated(ctx, o, obj, old, true)
}

// statusPrevalidated is prevalidated for an update of the status.
func (c *custom) statusPrevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object) (field.ErrorList, bool) {
	return c.checkPrevalidated(ctx, o, obj, old, false)
}

func (c *custom) checkPrevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object, spec bool) (field.ErrorList, bool) {
	if o.APIVersion != c.kind.GVK(c.version.Name).GroupVersion().String() {
		// It is stored in a version that has a schema of its own.
		return nil, false
	}
	s, v, errs := c.validators()
	if errs != nil {
		return nil, false
	}
	verdict := s.compiled().Check(o.Data, prevalidate.Stored)
	if verdict >= prevalidate.Canonical {
		o.Canonical(c.kind.Codec.(*codec).id, func(*resource.Object) bool { return true })
	}
	if verdict != prevalidate.Valid {
		return nil, false
	}
	object := content(obj)
	errs = c.validateScale(object, spec)
	if v.rules == nil {
		return errs, true
	}
	if old == nil {
		return validateRules(ctx, s, v, errs, object, nil), true
	}
	return validateRules(ctx, s, v, errs, object, content(old), cel.WithRatcheting(correlate(s, object, content(old)))), true
}

// correlate pairs the values of an object with those that it had, for ratcheting.
func correlate(s *versionSchema, object, was map[string]any) *common.CorrelatedObject {
	return common.NewCorrelatedObject(object, was, &model.Structural{Structural: s.structural})
}

// validateLists validates lists that are sets or maps, unless the old object was invalid.
func validateLists(s *versionSchema, object, was map[string]any) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, s.structural, object)
	if len(errs) > 0 && len(listtype.ValidateListSetsAndMaps(nil, s.structural, was)) > 0 {
		return nil
	}
	return errs
}

// validateRules adds the errors of the CEL rules to errs, unless errs has an error that
// prevents their evaluation.
func validateRules(ctx context.Context, s *versionSchema, v *validators, errs field.ErrorList, object, was map[string]any, options ...cel.Option) field.ErrorList {
	if v.rules == nil {
		return errs
	}
	blocks := func(e *field.Error) bool {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
		return false
	}
	if slices.ContainsFunc(errs, blocks) {
		return append(errs, field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
	}
	// A nil map in an interface is not nil.
	var old any
	if was != nil {
		old = was
	}
	if was != nil {
		// Errors of values that did not change are warnings.
		ctx = warning.WithWarningRecorder(ctx, recorder{ctx})
	}
	found, _ := v.rules.Validate(ctx, nil, s.structural, object, old, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, found...)
}

// recorder adds the warnings of rules to the response.
type recorder struct{ ctx context.Context }

// AddWarning implements warning.Recorder.
func (r recorder) AddWarning(_, text string) { filter.AddWarning(r.ctx, text) }

// validateScale validates the fields of the scale subresource.
func (c *custom) validateScale(object map[string]any, spec bool) (errs field.ErrorList) {
	scale := c.scale()
	if scale == nil {
		return nil
	}
	if spec {
		errs = validateReplicas(errs, object, scale.SpecReplicasPath)
	}
	errs = validateReplicas(errs, object, scale.StatusReplicasPath)
	if at := scale.LabelSelectorPath; at != nil {
		if selector, _, err := unstructured.NestedString(object, splitPath(*at)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*at), selector, err.Error()))
		}
	}
	return errs
}

func validateReplicas(errs field.ErrorList, object map[string]any, at string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(object, splitPath(at)...)
	switch {
	case err != nil:
		return append(errs, field.Invalid(field.NewPath(at), n, err.Error()))
	case n < 0:
		return append(errs, field.Invalid(field.NewPath(at), n, "should be a non-negative integer"))
	case n > math.MaxInt32:
		return append(errs, field.Invalid(field.NewPath(at), n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
	}
	return errs
}

// splitPath splits a simple JSON path (".spec.replicas") into its fields.
func splitPath(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// finalizerWarnings warns of new finalizers without a domain, which may conflict with those
// of others.
func finalizerWarnings(_ context.Context, obj, old rest.Object) []string {
	added := sets.New(obj.GetFinalizers()...)
	if old != nil {
		added = added.Difference(sets.New(old.GetFinalizers()...))
	}
	standard := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes)}
	var out []string
	for _, name := range sets.List(added) {
		for _, text := range utilvalidation.IsQualifiedName(name) {
			out = append(out, fmt.Sprintf("metadata.finalizers: %q: %s", name, text))
		}
		if strings.Contains(name, "/") || slices.Contains(standard, name) {
			continue
		}
		advice := "prefer a domain-qualified finalizer name"
		if strings.Contains(name, ".") {
			advice += " including a path (/)"
		}
		out = append(out, fmt.Sprintf("metadata.finalizers: %q: %s to avoid accidental conflicts with other finalizer writers", name, advice))
	}
	return out
}
