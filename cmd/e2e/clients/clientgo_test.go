package clients

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"

	"portico/cmd/e2e"
)

// A typed client works in JSON and in protobuf.
func TestTypedClients(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			t.Parallel()
			cfg := up.Config(t)
			cfg.ContentType = contentType
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			secrets := client.CoreV1().Secrets(e2e.NewNamespace(t, client))
			made, err := secrets.Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"app": "a"}},
				Data:       map[string][]byte{"k": {0, 1, 255}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if made.UID == "" || made.ResourceVersion == "" || made.Type != corev1.SecretTypeOpaque || string(made.Data["k"]) != "\x00\x01\xff" {
				t.Errorf("created: %+v", made)
			}
			if _, err := secrets.Create(t.Context(), made.DeepCopy(), metav1.CreateOptions{}); err == nil {
				t.Error("created with a resourceVersion")
			}
			stale := made.DeepCopy()
			made.Labels["app"] = "b"
			if _, err = secrets.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := secrets.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("update of a stale object: %v", err)
			}
			if _, err := secrets.Patch(t.Context(), "s", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"tier":"x"}}}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
			list, err := secrets.List(t.Context(), metav1.ListOptions{LabelSelector: "app=b,tier=x", FieldSelector: "metadata.name=s"})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("list: %v %v", list, err)
			}
			if err := secrets.Delete(t.Context(), "s", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
				t.Errorf("delete of another uid: %v", err)
			}
			if err := secrets.Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			if _, err := secrets.Get(t.Context(), "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get of the deleted: %v", err)
			}
		})
	}
}

// A shared informer gets the existing objects, then every change.
func TestSharedInformer(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	ns := e2e.NewNamespace(t, client)
	maps := client.CoreV1().ConfigMaps(ns)
	const n = 50
	put := func(i int) {
		t.Helper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cm-%03d", i), Labels: map[string]string{"t": "informer"}}}
		if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		put(i)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps(ns)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory.Start(ctx.Done())
	syncCtx, cancelSync := context.WithTimeout(ctx, e2e.Patience)
	defer cancelSync()
	for typ, ok := range factory.WaitForCacheSync(syncCtx.Done()) {
		if !ok {
			t.Fatalf("%v is not synced", typ)
		}
	}
	selector := labels.SelectorFromSet(labels.Set{"t": "informer"})
	count := func(want int) func() error {
		return func() error {
			items, err := lister.List(selector)
			if err == nil && len(items) != want {
				err = fmt.Errorf("sees %d, want %d", len(items), want)
			}
			return err
		}
	}
	if err := count(n)(); err != nil {
		t.Error("after sync:", err)
	}
	for i := range n {
		put(n + i)
	}
	e2e.Eventually(t, "the informer sees what was created", count(2*n))
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "t=informer"}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the informer sees that all are gone", count(0))
	cancel()
	factory.Shutdown()
}

// Of two candidates one leads; when it releases the lease, the other one does.
func TestLeaderElection(t *testing.T) {
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	ns := e2e.NewNamespace(t, client)
	var leader atomic.Value
	leader.Store("")
	candidate := func(id string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: ns, Name: "lock"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: id},
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: lock, ReleaseOnCancel: true,
				LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 50 * time.Millisecond,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) { leader.Store(id) },
					OnStoppedLeading: func() {},
				},
			})
		}()
		return func() { cancel(); <-done }
	}
	leads := func(id string) func() error {
		return func() error {
			if got := leader.Load(); got != id {
				return fmt.Errorf("%q leads", got)
			}
			return nil
		}
	}
	stopA := candidate("a")
	e2e.Eventually(t, "a leads", leads("a"))
	stopB := candidate("b")
	defer stopB()
	lease, err := client.CoordinationV1().Leases(ns).Get(t.Context(), "lock", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "a" {
		t.Errorf("lease: %+v %v", lease, err)
	}
	stopA()
	e2e.Eventually(t, "b leads after a has released the lease", leads("b"))
}

// When several writers of one object retry on conflict, no write is lost.
func TestConcurrentUpdates(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	maps := client.CoreV1().ConfigMaps(e2e.NewNamespace(t, client))
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, writes = 4, 10
	errs := make(chan error, writers)
	backoff := retry.DefaultBackoff
	backoff.Steps = 100
	for w := range writers {
		go func() {
			for i := range writes {
				err := retry.RetryOnConflict(backoff, func() error {
					cm, err := maps.Get(t.Context(), "c", metav1.GetOptions{})
					if err != nil {
						return err
					}
					if cm.Data == nil {
						cm.Data = map[string]string{}
					}
					cm.Data[fmt.Sprintf("%d-%d", w, i)] = "x"
					_, err = maps.Update(t.Context(), cm, metav1.UpdateOptions{})
					return err
				})
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	cm, err := maps.Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil || len(cm.Data) != writers*writes {
		t.Errorf("%d writes are there, want %d (%v)", len(cm.Data), writers*writes, err)
	}
}

// A namespace is deleted with its objects.
func TestNamespaceDrains(t *testing.T) {
	up := e2e.SharedInstallation(t)
	client := up.Client(t)
	ns := e2e.NewNamespace(t, client)
	for i := range 5 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cm-", i)}}
		if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the namespace is gone", func() error {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return fmt.Errorf("namespace %s is there", ns)
		}
		return err
	})
	list, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("left behind: %v %v", list.Items, err)
	}
}
