package faults

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico/cmd/e2e"
)

// While the dependents of a deleted owner are deleted, every server is killed. In the end they
// are all deleted, and none of an owner that exists.
func TestGarbageCollectionWhileServersDie(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	client := up.Client(t)
	maps := client.CoreV1().ConfigMaps("default")
	gone := ownedMaps(t, client, "default", "gone", 400)
	ownedMaps(t, client, "default", "kept", 24)
	if err := maps.Delete(t.Context(), gone.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"core", "gateway", "crd", "core"} {
		up.Kill9(t, server)
	}
	e2e.Eventually(t, "the dependents are deleted", func() error {
		list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "owner=gone"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
	list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "owner=kept"})
	if err != nil || len(list.Items) != 25 {
		t.Errorf("%d objects of the other owner are left, want 25; %v", len(list.Items), err)
	}
}

// ownedMaps creates a ConfigMap that owns as many others, and returns it.
func ownedMaps(t *testing.T, client kubernetes.Interface, ns, owner string, count int) *corev1.ConfigMap {
	t.Helper()
	o, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: owner + "-", Labels: map[string]string{"owner": owner},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ownMaps(t, client, o, count)
	return o
}

// ownMaps creates ConfigMaps that o owns, with its labels.
func ownMaps(t *testing.T, client kubernetes.Interface, o *corev1.ConfigMap, count int) {
	t.Helper()
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID, BlockOwnerDeletion: new(true)}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range (count + 7) / 8 {
				if _, err := client.CoreV1().ConfigMaps(o.Namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					GenerateName: o.GenerateName, Labels: o.Labels, OwnerReferences: []metav1.OwnerReference{ref},
				}}, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
