package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// Pods without tolerations of nodes that are not ready or not reachable get them.
func TestDefaultTolerationSeconds(t *testing.T) {
	t.Parallel()
	toleration := func(key string, seconds int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(seconds)}
	}
	notReady, unreachable := toleration("node.kubernetes.io/not-ready", 300), toleration("node.kubernetes.io/unreachable", 60)
	own := corev1.Toleration{Key: "foo", Operator: "Equal", Value: "bar", Effect: "NoSchedule"}
	later := toleration("node.kubernetes.io/not-ready", 700)
	w := newWorld(t)
	w.options.UnreachableTolerationSeconds = ptr.To[int64](60)
	plugin := w.only("DefaultTolerationSeconds")
	for _, tc := range []struct {
		name        string
		given, want []corev1.Toleration
	}{
		{"none", nil, []corev1.Toleration{notReady, unreachable}},
		{"another", []corev1.Toleration{own}, []corev1.Toleration{own, notReady, unreachable}},
		{"one of them", []corev1.Toleration{later}, []corev1.Toleration{later, unreachable}},
		{"all effects", []corev1.Toleration{{Key: unreachable.Key, Operator: "Exists"}}, []corev1.Toleration{{Key: unreachable.Key, Operator: "Exists"}, notReady}},
		{"everything", []corev1.Toleration{{Operator: "Exists"}}, []corev1.Toleration{{Operator: "Exists"}}},
		{"another effect", []corev1.Toleration{{Key: notReady.Key, Effect: "NoSchedule"}}, []corev1.Toleration{{Key: notReady.Key, Effect: "NoSchedule"}, notReady, unreachable}},
	} {
		pod := aPod(func(p *corev1.Pod) { p.Spec.Tolerations = tc.given })
		if err := admitWrite(t, plugin, w.write(pod, nil)); err != nil || !equality.Semantic.DeepEqual(pod.Spec.Tolerations, tc.want) {
			t.Errorf("%s: %v %v, want %v", tc.name, pod.Spec.Tolerations, err, tc.want)
		}
	}
	pod := aPod()
	if err := admitWrite(t, plugin, w.write(pod, aPod(), subresource("status"))); err != nil || pod.Spec.Tolerations != nil {
		t.Errorf("status: %v %v", pod.Spec.Tolerations, err)
	}
}
