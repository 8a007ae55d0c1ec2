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
	gone := ownedMaps(t, client, "gone", 400)
	ownedMaps(t, client, "kept", 24)
	if err := maps.Delete(t.Context(), gone, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
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

// ownedMaps creates a ConfigMap that owns as many others, and returns its name.
func ownedMaps(t *testing.T, client kubernetes.Interface, owner string, count int) string {
	t.Helper()
	create := func(refs ...metav1.OwnerReference) (*corev1.ConfigMap, error) {
		return client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			GenerateName: owner + "-", Labels: map[string]string{"owner": owner}, OwnerReferences: refs,
		}}, metav1.CreateOptions{})
	}
	o, err := create()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range (count + 7) / 8 {
				if _, err := create(metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID, BlockOwnerDeletion: new(true)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return o.Name
}
