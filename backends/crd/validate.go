package crd

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

	"portico/resource/rest"
)

// validate checks a new object. rest checks its metadata.
func (c *custom) validate(ctx context.Context, obj rest.Object) field.ErrorList {
	s, checks, errs := c.checks()
	if errs != nil {
		return errs
	}
	object := content(obj)
	errs = append(errs, validation.ValidateCustomResource(nil, object, checks.whole)...)
	errs = append(errs, c.validateScale(object, true)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, object, s.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	return validateRules(ctx, s, checks, errs, object, nil)
}

// validateUpdate checks a changed object. What did not change is not held
// against it (ratcheting).
func (c *custom) validateUpdate(ctx context.Context, obj, old rest.Object) field.ErrorList {
	s, checks, errs := c.checks()
	if errs != nil {
		return errs
	}
	object, was := content(obj), content(old)
	unchanged := common.NewCorrelatedObject(object, was, &model.Structural{Structural: s.structural})
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, object, was, checks.whole, validation.WithRatcheting(unchanged))...)
	errs = append(errs, c.validateScale(object, true)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, object, s.structural, false)...)
	errs = append(errs, validateLists(s, object, was)...)
	return validateRules(ctx, s, checks, errs, object, was, cel.WithRatcheting(unchanged))
}

// validateStatus checks a change of the status alone.
func (c *custom) validateStatus(ctx context.Context, obj, old rest.Object) field.ErrorList {
	s, checks, errs := c.checks()
	if errs != nil {
		return errs
	}
	object, was := content(obj), content(old)
	unchanged := common.NewCorrelatedObject(object, was, &model.Structural{Structural: s.structural})
	if status, ok := object["status"]; ok && checks.status != nil {
		errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, was["status"], checks.status,
			validation.WithRatcheting(unchanged.Key("status")))...)
	}
	errs = append(errs, c.validateScale(object, false)...)
	errs = append(errs, validateLists(s, object, was)...)
	return validateRules(ctx, s, checks, errs, object, was, cel.WithRatcheting(unchanged))
}

func (c *custom) checks() (*versionSchema, *checks, field.ErrorList) {
	s, err := c.server.schemaOf(c.serving, c.version.Name)
	if err != nil {
		return nil, nil, internalError(err)
	}
	checks, err := s.checks()
	if err != nil {
		return nil, nil, internalError(err)
	}
	return s, checks, nil
}

// validateLists checks sets and maps that were in order before.
func validateLists(s *versionSchema, object, was map[string]any) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, s.structural, object)
	if len(errs) > 0 && len(listtype.ValidateListSetsAndMaps(nil, s.structural, was)) > 0 {
		return nil
	}
	return errs
}

// validateRules adds what the CEL rules find to errs, unless the object is too
// broken for them.
func validateRules(ctx context.Context, s *versionSchema, c *checks, errs field.ErrorList, object, was map[string]any, options ...cel.Option) field.ErrorList {
	if c.rules == nil {
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
	found, _ := c.rules.Validate(ctx, nil, s.structural, object, old, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, found...)
}

// validateScale checks the fields that the scale subresource is made of.
func (c *custom) validateScale(object map[string]any, spec bool) field.ErrorList {
	if c.version.Subresources == nil || c.version.Subresources.Scale == nil {
		return nil
	}
	scale := c.version.Subresources.Scale
	var errs field.ErrorList
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

// splitPath cuts a simple JSON path (".spec.replicas") into its fields.
func splitPath(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// finalizerWarnings warns of new finalizers whose names others may use, too.
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
