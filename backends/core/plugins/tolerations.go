package plugins

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// mergeTolerations returns both lists without the tolerations that another one of them includes.
func mergeTolerations(first, second []corev1.Toleration) (merged []corev1.Toleration) {
	all := slices.Concat(first, second)
	for i := range all {
		t := &all[i]
		included := slices.ContainsFunc(merged, func(m corev1.Toleration) bool { return includes(&m, t) }) ||
			slices.ContainsFunc(all[i+1:], func(next corev1.Toleration) bool {
				return !equality.Semantic.DeepEqual(t, &next) && includes(&next, t)
			})
		if !included {
			merged = append(merged, *t)
		}
	}
	return merged
}

// includes reports whether more tolerates everything that t does.
func includes(more, t *corev1.Toleration) bool {
	everyKey := more.Key == "" && more.Operator == corev1.TolerationOpExists
	switch {
	case equality.Semantic.DeepEqual(more, t):
		return true
	case t.Key != more.Key && !everyKey:
		return false
	case t.Effect != more.Effect && more.Effect != "":
		return false
	case more.Effect == corev1.TaintEffectNoExecute && more.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *more.TolerationSeconds):
		return false
	}
	switch more.Operator {
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && t.Value == more.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}

// allTolerated reports whether each toleration is included in one that is allowed.
func allTolerated(tolerations, allowed []corev1.Toleration) bool {
	return !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return !slices.ContainsFunc(allowed, func(a corev1.Toleration) bool { return includes(&a, &t) })
	})
}
