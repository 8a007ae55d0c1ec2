package clients

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portico/cmd/e2e"
)

// The controllers of endpoints have the rights that they need: a pod is in the slices and the
// Endpoints of its Service, and they go with the Service.
func TestEndpointsOfService(t *testing.T) {
	t.Parallel()
	client := e2e.SharedInstallation(t).Client(t)
	ctx, ns := t.Context(), e2e.NewNamespace(t, client)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
	}}
	if _, err := client.CoreV1().Services(ns).Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: svc.Spec.Selector}, Spec: corev1.PodSpec{NodeName: ns, Containers: []corev1.Container{{
		Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
	}}}}
	pod, err := client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := client.CoreV1().Pods(ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the pod is in the slice and the Endpoints", func() error {
		list, err := client.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || len(list.Items[0].Endpoints) != 1 || *list.Items[0].Ports[0].Port != 8080 {
			return errNotYet
		}
		e, err := client.CoreV1().Endpoints(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil || len(e.Subsets) != 1 || !slices.Equal(list.Items[0].Endpoints[0].Addresses, []string{e.Subsets[0].Addresses[0].IP}) {
			return errNotYet
		}
		return nil
	})
	if err := client.CoreV1().Services(ns).Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "both go with the Service", func() error {
		list, err := client.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{})
		_, gone := client.CoreV1().Endpoints(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil || len(list.Items) > 0 || !apierrors.IsNotFound(gone) {
			return errNotYet
		}
		return nil
	})
}
