//go:build collection

package clients

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"portico/cmd/e2e"
)

// The most time that collection may take on two cores that do nothing else.
const (
	dependentsLimit = 15 * time.Second
	namespaceLimit  = 2 * time.Second
)

// With 1,000 definitions installed, an owner goes with its 10,000 dependents, by every policy,
// and a namespace with its 1,000 objects of 10 kinds, within the limits.
func TestCollectionAmongManyDefinitions(t *testing.T) {
	up := e2e.Install(t, t.TempDir())
	client := up.Client(t)
	definitions := e2e.DynamicClient(t, up.Config(t)).Resource(e2e.Definitions)
	atOnce(t, 1000, func(ctx context.Context, i int) error {
		_, err := definitions.Create(ctx, e2e.Widgets(t, fmt.Sprintf("many%d.example.com", i)), metav1.CreateOptions{})
		return err
	})
	e2e.Eventually(t, "the last definition is served", func() error {
		if code, answer := up.Do(t, http.MethodGet, "/apis/many999.example.com/v1/widgets", ""); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		took := collectDependents(t, client, policy)
		t.Logf("10,000 dependents, %s: %.1f s", policy, took.Seconds())
		if took > dependentsLimit {
			t.Errorf("10,000 dependents, %s: %v, want at most %v", policy, took, dependentsLimit)
		}
	}
	for range 3 {
		took := drainNamespace(t, client)
		t.Logf("namespace of 1,000 objects: %.2f s", took.Seconds())
		if took > namespaceLimit {
			t.Errorf("namespace of 1,000 objects: %v, want at most %v", took, namespaceLimit)
		}
	}
}

// atOnce calls do for 0 to n-1, 16 at a time.
func atOnce(t *testing.T, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// collectDependents deletes an owner of 10,000 ConfigMaps, and returns the time until the
// owner and, unless they are orphaned, the dependents are gone.
func collectDependents(t *testing.T, client kubernetes.Interface, policy metav1.DeletionPropagation) time.Duration {
	t.Helper()
	maps := client.CoreV1().ConfigMaps(e2e.NewNamespace(t, client))
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}
	atOnce(t, 10000, func(ctx context.Context, i int) error {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("dependent-%d", i), Labels: map[string]string{"is": "dependent"}, OwnerReferences: []metav1.OwnerReference{reference},
		}}, metav1.CreateOptions{})
		return err
	})
	began := time.Now()
	if err := maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the owner is gone, and its dependents unless they are orphans", func() error {
		if _, err := maps.Get(t.Context(), owner.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("owner: %v", err)
		}
		if policy == metav1.DeletePropagationOrphan {
			return nil
		}
		left, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "is=dependent", Limit: 1})
		if err != nil || len(left.Items) > 0 {
			return fmt.Errorf("dependents are left: %v", err)
		}
		return nil
	})
	took := time.Since(began)
	left, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "is=dependent"})
	if err != nil {
		t.Fatal(err)
	}
	orphans := slices.DeleteFunc(left.Items, func(o corev1.ConfigMap) bool { return len(o.OwnerReferences) > 0 })
	if policy == metav1.DeletePropagationOrphan && len(orphans) != 10000 {
		t.Errorf("%d orphans, want 10,000", len(orphans))
	}
	return took
}

// drainNamespace deletes a namespace that has 100 objects of each of ten kinds, and returns
// the time until it is gone.
func drainNamespace(t *testing.T, client kubernetes.Interface) time.Duration {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "drained-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const labels = `{"matchLabels":{"app":"x"}}`
	const template = `{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	kinds := []struct{ prefix, resource, rest string }{
		{"/api/v1", "configmaps", ``},
		{"/api/v1", "secrets", ``},
		{"/api/v1", "services", `,"spec":{"ports":[{"port":80}]}`},
		{"/api/v1", "podtemplates", `,"template":` + template},
		{"/apis/apps/v1", "deployments", `,"spec":{"selector":` + labels + `,"template":` + template + `}`},
		{"/apis/apps/v1", "replicasets", `,"spec":{"selector":` + labels + `,"template":` + template + `}`},
		{"/apis/rbac.authorization.k8s.io/v1", "roles", ``},
		{"/apis/coordination.k8s.io/v1", "leases", ``},
		{"/apis/policy/v1", "poddisruptionbudgets", `,"spec":{"selector":` + labels + `}`},
		{"/apis/many7.example.com/v1", "widgets", `,"apiVersion":"many7.example.com/v1","kind":"Widget"`},
	}
	atOnce(t, 1000, func(ctx context.Context, i int) error {
		k := kinds[i%len(kinds)]
		return client.CoreV1().RESTClient().Post().AbsPath(k.prefix, "namespaces", ns.Name, k.resource).
			SetHeader("Content-Type", runtime.ContentTypeJSON).Body(fmt.Appendf(nil, `{"metadata":{"name":"x%d"}%s}`, i, k.rest)).
			Do(ctx).Error()
	})
	began := time.Now()
	if err := client.CoreV1().Namespaces().Delete(t.Context(), ns.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the namespace is gone", func() error {
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace: %v", err)
		}
		return nil
	})
	return time.Since(began)
}
