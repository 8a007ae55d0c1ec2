package kinds

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// The parts that webhooks and policies share: the requests that they match.

// maxMatchConditions bounds the conditions of a webhook or policy.
const maxMatchConditions = 64

func validateFailurePolicy(p admissionregistrationv1.FailurePolicyType, path *field.Path) field.ErrorList {
	return rules.Supported(p, path, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
}

func validateMatchPolicy(p admissionregistrationv1.MatchPolicyType, path *field.Path) field.ErrorList {
	return rules.Supported(p, path, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
}

func validateReinvocation(p admissionregistrationv1.ReinvocationPolicyType, path *field.Path) field.ErrorList {
	return rules.Supported(p, path, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
}

func validateRuleWithOperations(r *admissionregistrationv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	operations := path.Child("operations")
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(operations, ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(operations, r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, op := range r.Operations {
		errs = append(errs, rules.Supported(op, operations.Index(i), admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
			admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)...)
	}
	return append(errs, validateRule(&r.Rule, path)...)
}

func validateRule(r *admissionregistrationv1.Rule, path *field.Path) field.ErrorList {
	errs := validateWildcards(r.APIGroups, path.Child("apiGroups"), "API groups")
	versions := path.Child("apiVersions")
	errs = append(errs, validateWildcards(r.APIVersions, versions, "API versions")...)
	for i, v := range r.APIVersions { // an empty group is the core group; an empty version is none
		if v == "" {
			errs = append(errs, field.Required(versions.Index(i), ""))
		}
	}
	errs = append(errs, validateRuleResources(r.Resources, path.Child("resources"))...)
	if r.Scope != nil {
		errs = append(errs, rules.Supported(*r.Scope, path.Child("scope"), admissionregistrationv1.AllScopes,
			admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)
	}
	return errs
}

func validateWildcards(values []string, path *field.Path, what string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(values) > 1 && slices.Contains(values, "*"):
		return field.ErrorList{field.Invalid(path, values, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

// validateRuleResources validates a list of "resource", "resource/subresource" and forms with
// "*". None may be covered by an earlier one.
func validateRuleResources(resources []string, path *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	wholeResource, everywhere := map[string]bool{}, map[string]bool{} // x/* and */x seen
	named := false
	for i, entry := range resources {
		res, sub, hasSub := strings.Cut(entry, "/")
		switch {
		case entry == "":
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		case !hasSub:
			named = named || entry != "*"
			continue
		}
		if wholeResource[res] {
			errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '%s/*' is present, must not specify %s", res, entry)))
		}
		if everywhere[sub] {
			errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, entry)))
		}
		wholeResource[res] = wholeResource[res] || sub == "*"
		everywhere[sub] = everywhere[sub] || res == "*"
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if named && slices.Contains(resources, "*") {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

func validateMatchConditions(conditions []admissionregistrationv1.MatchCondition, cel *celRules, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxMatchConditions {
		errs = append(errs, field.TooMany(path, len(conditions), maxMatchConditions))
	}
	seen := map[string]bool{}
	for i, c := range conditions {
		at := path.Index(i)
		if strings.TrimSpace(c.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			errs = append(errs, cel.condition(c.Expression, at.Child("expression"))...)
		}
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, rules.QualifiedName(c.Name, at.Child("name"))...)
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
	}
	return errs
}
