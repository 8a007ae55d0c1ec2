package access

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The merge functions add to have what want has more, and report whether that
// was anything. What have has more stays.

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
		if len(uncovered(*have, []rbacv1.PolicyRule{w})) > 0 {
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

func mergeClusterRole(have, want *rbacv1.ClusterRole) bool {
	changed := mergeMeta(have, want)
	if want.AggregationRule != nil { // its rules belong to aggregation
		return mergeSelectors(have, want.AggregationRule.ClusterRoleSelectors) || changed
	}
	return mergeRules(&have.Rules, want.Rules) || changed
}

// mergeSelectors adds to the roles that an aggregated role is made of.
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

func mergeRole(have, want *rbacv1.Role) bool {
	changed := mergeMeta(have, want)
	return mergeRules(&have.Rules, want.Rules) || changed
}

func mergeClusterBinding(have, want *rbacv1.ClusterRoleBinding) bool {
	changed := mergeMeta(have, want)
	return mergeSubjects(&have.Subjects, want.Subjects) || changed
}

func mergeBinding(have, want *rbacv1.RoleBinding) bool {
	changed := mergeMeta(have, want)
	return mergeSubjects(&have.Subjects, want.Subjects) || changed
}
