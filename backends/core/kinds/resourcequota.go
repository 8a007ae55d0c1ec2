package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// resourceQuotas is the row of v1 ResourceQuota.
func resourceQuotas() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "resourcequotas", Kind: "ResourceQuota", ShortNames: []string{"quota"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default: onDefault(func(q *corev1.ResourceQuota) {
				rules.RoundUp(q.Spec.Hard)
				rules.RoundUp(q.Status.Hard)
				rules.RoundUp(q.Status.Used)
			}),
			PrepareCreate:  onCreate(func(q *corev1.ResourceQuota) { q.Status = corev1.ResourceQuotaStatus{} }),
			PrepareUpdate:  onUpdate(func(q, old *corev1.ResourceQuota) { old.Status.DeepCopyInto(&q.Status) }),
			Validate:       check(func(q *corev1.ResourceQuota) field.ErrorList { return validateQuotaSpec(&q.Spec) }),
			ValidateUpdate: checkUpdate(validateQuotaUpdate),
			Warnings:       warnNew(quotaWarnings),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: onUpdate(func(q, old *corev1.ResourceQuota) { old.Spec.DeepCopyInto(&q.Spec) }),
			ValidateUpdate: checkNew(func(q *corev1.ResourceQuota) field.ErrorList {
				path := field.NewPath("status")
				return append(validateQuantities(q.Status.Hard, path.Child("hard")), validateQuantities(q.Status.Used, path.Child("used"))...)
			}),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Request", "string", "What is used and permitted of each resource, limits excepted."),
			column("Limit", "string", "What is used and permitted of the limits."),
			ageColumn(),
		},
		Cells:               cells(quotaCells),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}

func quotaCells(q *corev1.ResourceQuota) []any {
	var requests, limits []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(string(name), "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), age(q.CreationTimestamp)}
}

// quotaWarnings warns of requests above limits.
func quotaWarnings(q *corev1.ResourceQuota) []string {
	var warnings []string
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		name := "requests." + r
		request, ok := q.Spec.Hard[name]
		if !ok && (r == corev1.ResourceCPU || r == corev1.ResourceMemory) {
			name = r
			request, ok = q.Spec.Hard[name]
		}
		limit, limited := q.Spec.Hard["limits."+r]
		if ok && limited && request.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than limits.%s (%s)", name, request.String(), r, limit.String()))
		}
	}
	return warnings
}

func validateQuotaUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	errs := validateQuotaSpec(&q.Spec)
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

func validateQuotaSpec(spec *corev1.ResourceQuotaSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateQuantities(spec.Hard, path.Child("hard"))
	at := path.Child("scopes")
	for _, scope := range spec.Scopes {
		errs = append(errs, validateQuotaScope(scope, spec.Hard, at, spec.Scopes, at, spec.Scopes)...)
	}
	errs = append(errs, validateScopePairs(spec.Scopes, spec, at)...)
	if spec.ScopeSelector == nil {
		return errs
	}
	at = path.Child("scopeSelector", "matchExpressions")
	var scopes []corev1.ResourceQuotaScope
	for _, e := range spec.ScopeSelector.MatchExpressions {
		errs = append(errs, validateQuotaScope(e.ScopeName, spec.Hard, at.Child("scopeName"), e.ScopeName, at, spec.ScopeSelector)...)
		errs = append(errs, validateScopeExpression(&e, at)...)
		scopes = append(scopes, e.ScopeName)
	}
	return append(errs, validateScopePairs(scopes, spec, at)...)
}

func validateQuantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := path.Key(string(name))
		errs = append(errs, rules.ResourceName(name, at)...)
		if !strings.Contains(string(name), "/") && !hasQuota(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		errs = append(errs, rules.ResourceQuantity(name, list[name], at)...)
	}
	return errs
}

// hasQuota reports whether a resource without a domain has a quota.
func hasQuota(name corev1.ResourceName) bool {
	return rules.StandardResource(name) && name != corev1.ResourceStorage
}

// podScopes are the scopes of pods.
var podScopes = []corev1.ResourceQuotaScope{
	corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
	corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
}

// inScope reports whether the objects of a scope use a resource.
func inScope(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	switch {
	case scope == corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	case !slices.Contains(podScopes, scope), name == corev1.ResourcePods:
		return true
	case scope == corev1.ResourceQuotaScopeBestEffort:
		return false
	}
	return slices.Contains([]corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	}, name)
}

// validateQuotaScope validates one scope. scopeAt and scopeValue are those of the error of an
// unknown scope, at and value those of one that does not suit a resource.
func validateQuotaScope(scope corev1.ResourceQuotaScope, hard corev1.ResourceList, scopeAt *field.Path, scopeValue any, at *field.Path, value any,
) field.ErrorList {
	var errs field.ErrorList
	if !slices.Contains(podScopes, scope) && scope != corev1.ResourceQuotaScopeVolumeAttributesClass {
		errs = append(errs, field.Invalid(scopeAt, scopeValue, "unsupported scope"))
	}
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		if hasQuota(name) && !inScope(scope, name) {
			errs = append(errs, field.Invalid(at, value, "unsupported scope applied to resource"))
		}
	}
	return errs
}

func validateScopeExpression(e *corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if slices.Contains(podScopes, e.ScopeName) && e.ScopeName != corev1.ResourceQuotaScopePriorityClass && e.Operator != corev1.ScopeSelectorOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), e.Operator,
			"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
	}
	switch e.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(e.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(e.Values) > 0 {
			errs = append(errs, field.Invalid(path.Child("values"), e.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), e.Operator, "not a valid selector operator"))
	}
	return errs
}

// validateScopePairs rejects scopes that exclude each other.
func validateScopePairs(scopes []corev1.ResourceQuotaScope, spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			errs = append(errs, field.Invalid(path, spec.Scopes, "conflicting scopes"))
		}
	}
	return errs
}
