package clients

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// settled returns a new namespace that has the objects which every namespace gets.
func settled(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	ns := e2e.NewNamespace(t, client)
	e2e.Eventually(t, "the namespace has its root certificate", func() error {
		_, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	return ns
}

// used waits until the usage of quota q of a namespace is want.
func used(t *testing.T, client kubernetes.Interface, ns, name string, want int64) {
	t.Helper()
	e2e.Eventually(t, fmt.Sprintf("%s uses %d %s", ns, want, name), func() error {
		q, err := client.CoreV1().ResourceQuotas(ns).Get(t.Context(), "q", metav1.GetOptions{})
		if err != nil {
			return err
		}
		n, ok := q.Status.Used[corev1.ResourceName(name)]
		if !ok || n.Value() != want {
			return fmt.Errorf("%w: %v, %d", errNotYet, ok, n.Value())
		}
		return nil
	})
}

// A quota counts the objects of a definition that is made after it within moments: nothing else searches for the resource
// earlier than half a minute after the quota was made.
func TestQuotaOfALaterDefinition(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	ns := settled(t, client)
	const group = "later.quota.example.com"
	up.MustKubectl(t, "create", "quota", "q", "-n", ns, "--hard=configmaps=2,count/widgets."+group+"=5")
	used(t, client, ns, "configmaps", 1)
	widgets := e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), group).Namespace(ns)
	began := time.Now()
	await.Until(t, "a widget is accepted", func() bool {
		_, err := widgets.Create(t.Context(), e2e.Widget(group, "w"), metav1.CreateOptions{})
		return err == nil
	})
	t.Logf("accepted after %v", time.Since(began))
}

// A quota of pods, config maps and custom resources is enforced by the servers that keep them,
// and what is deleted makes room.
func TestQuota(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	ns := settled(t, client)
	const group = "quota.example.com"
	widgets := e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), group).Namespace(ns)
	up.MustKubectl(t, "create", "quota", "q", "-n", ns, "--hard=pods=1,configmaps=2,count/widgets."+group+"=5")
	used(t, client, ns, "configmaps", 1)
	used(t, client, ns, "pods", 0)
	used(t, client, ns, "count/widgets."+group, 0)

	up.MustKubectl(t, "create", "configmap", "a", "-n", ns)
	up.MustKubectl(t, "run", "a", "-n", ns, "--image=i")
	for _, args := range [][]string{{"create", "configmap", "b"}, {"run", "b", "--image=i"}} {
		out, err := up.Kubectl(t, append(args, "-n", ns)...)
		if err == nil || !strings.Contains(out, "is forbidden: exceeded quota: q, requested: ") {
			t.Errorf("beyond the quota: %v %s", err, out)
		}
	}

	var made atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			switch _, err := widgets.Create(t.Context(), e2e.Widget(group, fmt.Sprintf("w%d", i)), metav1.CreateOptions{}); {
			case err == nil:
				made.Add(1)
			case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q, requested: count/widgets."+group+"=1"):
				t.Errorf("create a widget: %v", err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 5 {
		t.Errorf("%d widgets were created, want 5", made.Load())
	}
	if err := widgets.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	used(t, client, ns, "count/widgets."+group, 0)
	if _, err := widgets.Create(t.Context(), e2e.Widget(group, "again"), metav1.CreateOptions{}); err != nil {
		t.Errorf("after deletions: %v", err)
	}
	up.MustKubectl(t, "delete", "configmap", "a", "-n", ns)
	up.MustKubectl(t, "delete", "pod", "a", "-n", ns, "--force", "--grace-period=0")
	used(t, client, ns, "configmaps", 1)
	used(t, client, ns, "pods", 0)
	up.MustKubectl(t, "create", "configmap", "b", "-n", ns)
	if out := up.MustKubectl(t, "describe", "quota", "q", "-n", ns); !strings.Contains(out, "count/widgets."+group) {
		t.Errorf("described as %s", out)
	}
}

// revision is a state of a quota, or a change of the number of config maps.
type revision struct {
	at         int64
	delta      int64 // of the number of config maps
	used, hard int64 // of the quota, if it is one
	isQuota    bool
}

// record collects the events of a watch until ctx ends.
func record(ctx context.Context, t *testing.T, w watch.Interface, into *[]revision) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok {
				if ctx.Err() == nil {
					t.Error("a watch ended")
				}
				return
			}
			*into = append(*into, revisionOf(t, e))
		}
	}
}

func revisionOf(t *testing.T, e watch.Event) revision {
	var r revision
	o, err := meta.Accessor(e.Object)
	if err != nil {
		t.Errorf("a watch sent %v", e)
		return r
	}
	if _, err := fmt.Sscan(o.GetResourceVersion(), &r.at); err != nil {
		t.Error(err)
	}
	switch q, ok := e.Object.(*corev1.ResourceQuota); {
	case ok:
		r.isQuota = true
		usage, limit := q.Status.Used["configmaps"], q.Status.Hard["configmaps"]
		r.used, r.hard = usage.Value(), limit.Value()
	case e.Type == watch.Added:
		r.delta = 1
	case e.Type == watch.Deleted:
		r.delta = -1
	}
	return r
}

// While 50 clients create and delete objects and the quota changes, at every revision the usage
// is at least the number of stored objects, and it is never raised above the limit.
func TestQuotaHolds(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	cfg := up.Config(t)
	cfg.QPS = -1
	client := kubernetes.NewForConfigOrDie(cfg)
	ns := settled(t, client)
	maps, quotas := client.CoreV1().ConfigMaps(ns), client.CoreV1().ResourceQuotas(ns)
	limit := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{"configmaps": *apiresource.NewQuantity(n, apiresource.DecimalSI)}
	}
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: limit(20)}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used(t, client, ns, "configmaps", 1)

	ctx, cancel := context.WithCancel(t.Context())
	var states, changes []revision
	var watches sync.WaitGroup
	q, err := quotas.Get(ctx, "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for into, open := range map[*[]revision]func(context.Context, metav1.ListOptions) (watch.Interface, error){&states: quotas.Watch, &changes: maps.Watch} {
		w, err := open(ctx, metav1.ListOptions{ResourceVersion: q.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		watches.Go(func() { record(ctx, t, w, into) })
	}

	const enough = 30
	began, patience := time.Now(), await.Patience()
	var clients sync.WaitGroup
	var made atomic.Int64
	goOn := func() bool {
		return time.Since(began) < 4*time.Second || made.Load() < enough && time.Since(began) < patience
	}
	for range 50 {
		clients.Go(func() {
			for goOn() {
				o, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
				if err != nil {
					if !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) {
						t.Errorf("create: %v", err)
					}
					time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
					continue
				}
				made.Add(1)
				time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
				if err := maps.Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	clients.Go(func() {
		for i := int64(0); goOn(); i++ {
			if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				q, err := quotas.Get(ctx, "q", metav1.GetOptions{})
				if err != nil {
					return err
				}
				q.Spec.Hard = limit(10 + 20*(i%2))
				_, err = quotas.Update(ctx, q, metav1.UpdateOptions{})
				return err
			}); err != nil && !apierrors.IsConflict(err) {
				t.Errorf("change the quota: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	clients.Wait()
	cancel()
	watches.Wait()
	check(t, states, changes)
	t.Logf("%d objects, %d revisions of the quota", made.Load(), len(states))
	if made.Load() < enough {
		t.Errorf("only %d objects were created", made.Load())
	}
}

// check checks the invariants. The first state of the quota has one object used.
func check(t *testing.T, states, changes []revision) {
	t.Helper()
	all := slices.Concat(states, changes)
	slices.SortFunc(all, func(a, b revision) int { return cmp.Compare(a.at, b.at) })
	if len(states) == 0 || len(changes) == 0 {
		t.Fatalf("%d states of the quota, %d changes of objects", len(states), len(changes))
	}
	end := min(states[len(states)-1].at, changes[len(changes)-1].at) // both watches have seen what is before
	stored, usage := int64(1), int64(1)                              // kube-root-ca.crt
	for _, r := range all {
		if r.at > end {
			break
		}
		if r.isQuota {
			if r.used > usage && r.used > r.hard {
				t.Errorf("revision %d: usage was raised from %d to %d, above the limit %d", r.at, usage, r.used, r.hard)
			}
			usage = r.used
		}
		if stored += r.delta; stored > usage {
			t.Errorf("revision %d: %d objects are stored, and the usage is %d", r.at, stored, usage)
		}
	}
}
