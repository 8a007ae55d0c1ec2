package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// limitRanges is the row of v1 LimitRange. It has the default columns.
func limitRanges() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "limitranges", Kind: "LimitRange", ShortNames: []string{"limits"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default: onDefault(func(l *corev1.LimitRange) {
				for i := range l.Spec.Limits {
					defaultLimits(&l.Spec.Limits[i])
				}
			}),
			NewName:        func() string { return string(uuid.NewUUID()) },
			Validate:       check(validateLimitRange),
			ValidateUpdate: checkNew(validateLimitRange),
		},
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
	}
}

// defaultLimits takes the default limits of containers from the maxima, and the default
// requests from the default limits, then from the minima.
func defaultLimits(l *corev1.LimitRangeItem) {
	if l.Type == corev1.LimitTypeContainer {
		l.Default = withMissing(l.Default, l.Max)
		l.DefaultRequest = withMissing(withMissing(l.DefaultRequest, l.Default), l.Min)
	}
	for _, list := range limitLists(l) {
		rules.RoundUp(list)
	}
}

// withMissing adds the resources of from that are not in to.
func withMissing(to, from corev1.ResourceList) corev1.ResourceList {
	if to == nil {
		to = corev1.ResourceList{}
	}
	for name, q := range from {
		if _, ok := to[name]; !ok {
			to[name] = q.DeepCopy()
		}
	}
	return to
}

// The lists of quantities of a limit, by their fields.
const (
	limitMax, limitMin, limitDefault, limitRequest, limitRatio = "max", "min", "default", "defaultRequest", "maxLimitRequestRatio"
)

func limitLists(l *corev1.LimitRangeItem) map[string]corev1.ResourceList {
	return map[string]corev1.ResourceList{
		limitMax: l.Max, limitMin: l.Min, limitDefault: l.Default, limitRequest: l.DefaultRequest, limitRatio: l.MaxLimitRequestRatio,
	}
}

func validateLimitRange(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	types := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		item, path := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, path.Child("type"))...)
		if types[item.Type] {
			errs = append(errs, field.Duplicate(path.Child("type"), item.Type))
		}
		types[item.Type] = true
		errs = append(errs, validateLimits(item, path)...)
	}
	return errs
}

func validateLimitType(t corev1.LimitType, path *field.Path) field.ErrorList {
	if errs := rules.QualifiedName(string(t), path); len(errs) > 0 {
		return errs
	}
	switch t {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return nil
	}
	if strings.Contains(string(t), "/") {
		return nil
	}
	return field.ErrorList{field.Invalid(path, t, "must be a standard limit type or fully qualified")}
}

func validateLimits(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	name, lists := rules.ResourceName, limitLists(item)
	switch item.Type {
	case corev1.LimitTypePod:
		name = rules.ContainerResourceName
		for _, list := range []string{limitDefault, limitRequest} {
			if len(lists[list]) > 0 {
				errs = append(errs, field.Forbidden(path.Child(list), "may not be specified when `type` is 'Pod'"))
			}
			delete(lists, list)
		}
	case corev1.LimitTypeContainer:
		name = rules.ContainerResourceName
	case corev1.LimitTypePersistentVolumeClaim:
		_, least := item.Min[corev1.ResourceStorage]
		_, most := item.Max[corev1.ResourceStorage]
		if !least && !most {
			errs = append(errs, field.Required(path.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	limited := map[corev1.ResourceName]bool{}
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		for _, n := range slices.Sorted(maps.Keys(lists[list])) {
			errs = append(errs, name(n, path.Child(list).Key(string(n)))...)
			limited[n] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(limited)) {
		errs = append(errs, compareLimits(n, lists, path)...)
	}
	return errs
}

// limitOrders are the lists that are in order. The error is at a list and has the value of
// one.
var limitOrders = []struct{ low, high, at, value, lowText, highText string }{
	{limitMin, limitMax, limitMin, limitMin, "min", "max"},
	{limitMin, limitRequest, limitRequest, limitRequest, "min", "default request"},
	{limitRequest, limitMax, limitRequest, limitRequest, "default request", "max"},
	{limitRequest, limitDefault, limitRequest, limitRequest, "default request", "default limit"},
	{limitMin, limitDefault, limitDefault, limitMin, "min", "default"},
	{limitDefault, limitMax, limitDefault, limitMax, "default", "max"},
}

// compareLimits compares the quantities of a resource.
func compareLimits(name corev1.ResourceName, lists map[string]corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(list string, value apiresource.Quantity, format string, args ...any) {
		errs = append(errs, field.Invalid(path.Child(list).Key(string(name)), value, fmt.Sprintf(format, args...)))
	}
	has := func(list string) bool { _, ok := lists[list][name]; return ok }
	text := func(list string) string { q := lists[list][name]; return q.String() }
	for _, o := range limitOrders {
		low := lists[o.low][name]
		if has(o.low) && has(o.high) && low.Cmp(lists[o.high][name]) > 0 {
			refuse(o.at, lists[o.value][name], "%s value %s is greater than %s value %s", o.lowText, text(o.low), o.highText, text(o.high))
		}
	}
	if ratio := lists[limitRatio][name]; has(limitRatio) {
		if ratio.Cmp(*apiresource.NewQuantity(1, apiresource.DecimalSI)) < 0 {
			refuse(limitRatio, ratio, "ratio %s is less than 1", ratio.String())
		}
		if has(limitMin) && has(limitMax) {
			got, most := ratios(ratio, lists[limitMin][name], lists[limitMax][name])
			if got > most {
				refuse(limitRatio, ratio, "ratio %s is greater than max/min = %f", ratio.String(), most)
			}
		}
	}
	limit, request := lists[limitDefault][name], lists[limitRequest][name]
	if !rules.Overcommit(name) && has(limitDefault) && has(limitRequest) && limit.Cmp(request) != 0 {
		refuse(limitRequest, request, "default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)
	}
	return errs
}

// ratios returns ratio and most/least, in thousandths if all of them are small enough.
func ratios(ratio, least, most apiresource.Quantity) (got, limit float64) {
	if r := ratio.Value(); r >= apiresource.MaxMilliValue || least.Value() >= apiresource.MaxMilliValue || most.Value() >= apiresource.MaxMilliValue {
		return float64(r), float64(most.Value()) / float64(least.Value())
	}
	return float64(ratio.MilliValue()) / 1000, float64(most.MilliValue()) / float64(least.MilliValue())
}
