package access

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"

	"portico/resource/rest"
)

// merge adds the labels, annotations, rules, subjects and selectors of want that have lacks,
// and reports whether there were any. It removes nothing from have, except rules of the roles of
// Portico's processes: a version may need fewer than the one before.
func merge(have, want rest.Object) bool {
	changed := mergeMeta(have, want)
	switch want := want.(type) {
	case *rbacv1.Role:
		return mergeRules(&have.(*rbacv1.Role).Rules, want.Rules) || changed
	case *rbacv1.ClusterRole:
		have := have.(*rbacv1.ClusterRole)
		if want.AggregationRule != nil { // its rules belong to aggregation
			return mergeSelectors(have, want.AggregationRule.ClusterRoleSelectors) || changed
		}
		if strings.HasPrefix(want.Name, processRolePrefix) && !apiequality.Semantic.DeepEqual(have.Rules, want.Rules) {
			have.Rules = want.Rules
			return true
		}
		return mergeRules(&have.Rules, want.Rules) || changed
	}
	return mergeSubjects(bindingOf(have).subjects, *bindingOf(want).subjects) || changed
}

func mergeMeta(have, want metav1.Object) bool {
	l, changedL := added(have.GetLabels(), want.GetLabels())
	n, changedN := added(have.GetAnnotations(), want.GetAnnotations())
	have.SetLabels(l)
	have.SetAnnotations(n)
	return changedL || changedN
}

func added(have, want map[string]string) (map[string]string, bool) {
	out, changed := maps.Clone(have), false
	for k, v := range want {
		if _, ok := out[k]; !ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k], changed = v, true
		}
	}
	return out, changed
}

func mergeRules(have *[]rbacv1.PolicyRule, want []rbacv1.PolicyRule) bool {
	changed := false
	for _, w := range want {
		if covered, _ := rbacvalidation.Covers(*have, []rbacv1.PolicyRule{w}); !covered {
			*have, changed = append(*have, w), true
		}
	}
	return changed
}

func mergeSubjects(have *[]rbacv1.Subject, want []rbacv1.Subject) bool {
	changed := false
	for _, w := range want {
		if !slices.Contains(*have, w) {
			*have, changed = append(*have, w), true
		}
	}
	return changed
}

// mergeSelectors adds selectors to an aggregation rule.
func mergeSelectors(have *rbacv1.ClusterRole, want []metav1.LabelSelector) bool {
	var selectors []metav1.LabelSelector
	if have.AggregationRule != nil {
		selectors = have.AggregationRule.ClusterRoleSelectors
	}
	n := len(selectors)
	for _, w := range want {
		if !slices.ContainsFunc(selectors, func(h metav1.LabelSelector) bool { return apiequality.Semantic.DeepEqual(h, w) }) {
			selectors = append(selectors, w)
		}
	}
	if len(selectors) == n {
		return false
	}
	have.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: selectors}
	return true
}
