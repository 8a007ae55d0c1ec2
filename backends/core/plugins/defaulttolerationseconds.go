package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"portico/resource/rest"
)

// DefaultTolerationSeconds is how long a pod stays on a node that is not ready or not reachable.
const DefaultTolerationSeconds = 300

// newDefaultTolerationSeconds adds the tolerations of nodes that are not ready or not reachable
// to pods that do not have them.
func newDefaultTolerationSeconds(cfg *Config) (rest.Admission, error) {
	defaults := []corev1.Toleration{
		tolerationOf(corev1.TaintNodeNotReady, cfg.NotReadyTolerationSeconds),
		tolerationOf(corev1.TaintNodeUnreachable, cfg.UnreachableTolerationSeconds),
	}
	return mutates(func(_ context.Context, a *rest.Attributes) error {
		pod := podOf(a)
		if pod == nil {
			return nil
		}
		given := pod.Spec.Tolerations
		for _, d := range defaults {
			if !tolerates(given, &d) {
				pod.Spec.Tolerations = append(pod.Spec.Tolerations, *d.DeepCopy())
			}
		}
		return nil
	}), nil
}

func tolerationOf(taint string, seconds *int64) corev1.Toleration {
	return corev1.Toleration{
		Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: ptr.To(ptr.Deref(seconds, DefaultTolerationSeconds)),
	}
}

// tolerates reports whether a toleration has the key and the effect of d; an empty one has all.
func tolerates(given []corev1.Toleration, d *corev1.Toleration) bool {
	for _, t := range given {
		if (t.Key == d.Key || t.Key == "") && (t.Effect == d.Effect || t.Effect == "") {
			return true
		}
	}
	return false
}
