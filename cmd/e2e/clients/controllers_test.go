package clients

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// The controllers of budgets and claims have the rights that they need, and find the scale of
// a custom resource.
func TestBudgetAndClaimControllers(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	ctx, ns := t.Context(), e2e.NewNamespace(t, client)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	if _, err := client.CoreV1().PersistentVolumeClaims(ns).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the claim is protected", func() error {
		got, err := client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "c", metav1.GetOptions{})
		if err != nil || !slices.Contains(got.Finalizers, "kubernetes.io/pvc-protection") {
			return errNotYet
		}
		return nil
	})
	if err := client.CoreV1().PersistentVolumeClaims(ns).Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the claim is gone", func() error {
		if _, err := client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errNotYet
		}
		return nil
	})

	owner := newScaled(t, up, ns, 5)
	for i := range 4 {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{owner}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		pod, err := client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if _, err := client.CoreV1().Pods(ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: new(intstr.FromInt32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
	if _, err := client.PolicyV1().PodDisruptionBudgets(ns).Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var status policyv1.PodDisruptionBudgetStatus
	e2e.Eventually(t, "the budget allows two disruptions", func() error {
		got, err := client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "b", metav1.GetOptions{})
		if err == nil {
			status = got.Status
		}
		if err != nil || status.ExpectedPods != 5 || status.DesiredHealthy != 2 || status.DisruptionsAllowed != 2 {
			return fmt.Errorf("status %+v, %w", status, err)
		}
		return nil
	})
}

// newScaled creates a custom resource with replicas and the subresource scale, and returns a
// reference to it as a controller.
func newScaled(t *testing.T, up *e2e.Installation, ns string, replicas int64) metav1.OwnerReference {
	t.Helper()
	client := e2e.DynamicClient(t, up.Config(t))
	definition := e2e.Widgets(t, "scaled.example.com")
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	version := versions[0].(map[string]any)
	version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	version["subresources"] = map[string]any{"scale": map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}
	if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(e2e.Definitions).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "scaled.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{"replicas": replicas},
	}}
	widgets := client.Resource(schema.GroupVersionResource{Group: "scaled.example.com", Version: "v1", Resource: "widgets"}).Namespace(ns)
	e2e.Eventually(t, "the widget is there", func() error {
		made, err := widgets.Create(t.Context(), widget.DeepCopy(), metav1.CreateOptions{})
		if err == nil {
			widget = made
		}
		return err
	})
	return metav1.OwnerReference{APIVersion: "scaled.example.com/v1", Kind: "Widget", Name: "w", UID: widget.GetUID(), Controller: new(true)}
}
