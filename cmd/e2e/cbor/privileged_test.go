package cbor

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico/cmd/e2e"
)

// --allow-privileged=false refuses privileged containers, as kube-apiserver does.
func TestPrivilegedContainersAreRefused(t *testing.T) {
	t.Parallel()
	client := e2e.SharedInstallation(t).Client(t)
	pods := client.CoreV1().Pods(e2e.NewNamespace(t, client))
	for _, privileged := range []bool{true, false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{
			Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		}}}}
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		if refused := apierrors.IsInvalid(err) && strings.Contains(err.Error(), "privileged: Forbidden: disallowed by cluster policy"); refused != privileged {
			t.Errorf("privileged %v: %v", privileged, err)
		}
	}
}
