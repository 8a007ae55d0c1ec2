package rules

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// deprecatedNodeLabels are labels of nodes with the reason not to use them.
var deprecatedNodeLabels = map[string]string{
	corev1.LabelInstanceType:            replacedNodeLabel("v1.17", corev1.LabelInstanceTypeStable),
	corev1.LabelFailureDomainBetaRegion: replacedNodeLabel("v1.17", corev1.LabelTopologyRegion),
	corev1.LabelFailureDomainBetaZone:   replacedNodeLabel("v1.17", corev1.LabelTopologyZone),
	"beta." + corev1.LabelArchStable:    replacedNodeLabel("v1.14", corev1.LabelArchStable),
	"beta." + corev1.LabelOSStable:      replacedNodeLabel("v1.14", corev1.LabelOSStable),
	"app.kubernetes.io/created-by":      "deprecated since v1.9",
	corev1.PreferAvoidPodsAnnotationKey: "deprecated since v1.22; use Taints and Tolerations instead",
	"node-role.kubernetes.io/master":    `use "node-role.kubernetes.io/control-plane" instead`,
}

func replacedNodeLabel(since, by string) string {
	return fmt.Sprintf("deprecated since %s; use %q instead", since, by)
}

// DeprecatedNodeLabel returns why a label of nodes is not to be used, "" if it may be.
func DeprecatedNodeLabel(key string) string { return deprecatedNodeLabels[key] }

// NodeTermWarnings returns the warnings about a term of a node selector. values tells whether
// values that no label can have are among them.
func NodeTermWarnings(term *corev1.NodeSelectorTerm, values bool, path *field.Path) []string {
	var out []string
	for i, e := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		out = append(out, deprecatedKey(e.Key, at.Child("key"))...)
		for j, v := range e.Values {
			if !values {
				break
			}
			for _, m := range validation.IsValidLabelValue(v) {
				out = append(out, fmt.Sprintf("%s: %s is invalid, %s", at.Child("values").Index(j), v, m))
			}
		}
	}
	return out
}

// NodeLabelWarnings returns the warnings about a label selector for nodes.
func NodeLabelWarnings(s *metav1.LabelSelector, path *field.Path) []string {
	if s == nil {
		return nil
	}
	var out []string
	for i, e := range s.MatchExpressions {
		out = append(out, deprecatedKey(e.Key, path.Child("matchExpressions").Index(i).Child("key"))...)
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if why := DeprecatedNodeLabel(key); why != "" {
			out = append(out, fmt.Sprintf("%s: %s", path.Child("matchLabels").Child(key), why))
		}
	}
	return out
}

func deprecatedKey(key string, path *field.Path) []string {
	if why := DeprecatedNodeLabel(key); why != "" {
		return []string{fmt.Sprintf("%s: %s is %s", path, key, why)}
	}
	return nil
}

// InvalidNodeValues reports whether terms of a node selector have a value that no label can
// have.
func InvalidNodeValues(terms []corev1.NodeSelectorTerm) bool {
	for i := range terms {
		for _, e := range terms[i].MatchExpressions {
			if slices.ContainsFunc(e.Values, func(v string) bool { return len(validation.IsValidLabelValue(v)) > 0 }) {
				return true
			}
		}
	}
	return false
}

// NodeSelector requires a term and valid terms. lax permits values that no label can have.
func NodeSelector(s *corev1.NodeSelector, lax bool, path *field.Path) field.ErrorList {
	path = path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(path, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		errs = append(errs, NodeSelectorTerm(&s.NodeSelectorTerms[i], lax, path.Index(i))...)
	}
	return errs
}

// NodeSelectorTerm is NodeSelector for one term.
func NodeSelectorTerm(term *corev1.NodeSelectorTerm, lax bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		errs = append(errs, nodeExpression(&term.MatchExpressions[i], lax, path.Child("matchExpressions").Index(i))...)
	}
	for i := range term.MatchFields {
		errs = append(errs, nodeField(&term.MatchFields[i], path.Child("matchFields").Index(i))...)
	}
	return errs
}

func nodeExpression(r *corev1.NodeSelectorRequirement, lax bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
	if !lax {
		for i, v := range r.Values {
			errs = append(errs, Invalid(values.Index(i), v, validation.IsValidLabelValue(v))...)
		}
	}
	return errs
}

// nodeField returns the errors of a requirement on the name of nodes, the only field.
func nodeField(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, v := range r.Values {
		errs = append(errs, Invalid(path.Child("values").Index(i), v, apivalidation.NameIsDNSSubdomain(v, false))...)
	}
	return errs
}
