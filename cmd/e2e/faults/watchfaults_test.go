package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portico/cmd/e2e"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// follower is an informer and the collection that it follows.
type follower struct {
	name     string
	objects  dynamic.ResourceInterface
	make     func(name string) *unstructured.Unstructured
	informer cache.SharedIndexInformer

	mu     sync.Mutex
	newest map[string]int64 // revision by name
	synced int64            // revision of everything
	back   []string         // what went back
}

// note checks that nothing that the informer tells is older than what it told
// before of the same object, whatever has become of it meanwhile.
func (f *follower) note(what string, obj any) {
	if _, guess := obj.(cache.DeletedFinalStateUnknown); guess {
		return // the state known last
	}
	o := obj.(metav1.Object)
	f.mu.Lock()
	defer f.mu.Unlock()
	rev, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil || rev < f.newest[o.GetName()] {
		f.back = append(f.back, fmt.Sprintf("%s of %s at %s after %d", what, o.GetName(), o.GetResourceVersion(), f.newest[o.GetName()]))
	}
	f.newest[o.GetName()] = rev
	synced, err := strconv.ParseInt(f.informer.LastSyncResourceVersion(), 10, 64)
	if err != nil || synced < f.synced {
		f.back = append(f.back, fmt.Sprintf("all of it from %d to %s", f.synced, f.informer.LastSyncResourceVersion()))
	}
	f.synced = synced
}

func (f *follower) start(t *testing.T, stop <-chan struct{}) {
	t.Helper()
	f.newest = map[string]int64{}
	_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.note("addition", obj) },
		UpdateFunc: func(_, obj any) { f.note("change", obj) },
		DeleteFunc: func(obj any) { f.note("deletion", obj) },
	})
	if err != nil {
		t.Fatal(err)
	}
	go f.informer.Run(stop)
}

// write is the n-th write: it makes, changes or deletes an object, one of a few
// that come and go or a recent one that is then left alone, so that what an
// informer misses stays missing. What fails is not repeated.
func (f *follower) write(ctx context.Context, rnd *rand.Rand, n int) error {
	name := fmt.Sprint("again-", rnd.IntN(5))
	verb := rnd.IntN(3)
	switch rnd.IntN(4) {
	case 0:
	case 1:
		name, verb = fmt.Sprint("once-", n), 1
	default:
		name = fmt.Sprint("once-", n-rnd.IntN(30))
	}
	switch verb {
	case 0:
		return f.objects.Delete(ctx, name, metav1.DeleteOptions{})
	case 1:
		_, err := f.objects.Create(ctx, f.make(name), metav1.CreateOptions{})
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, rnd.Uint32())
	_, err := f.objects.Patch(ctx, name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	return err
}

// follows waits until the informer has an object that is made now.
func (f *follower) follows(t *testing.T, name string) {
	t.Helper()
	e2e.Eventually(t, "create "+name+" in "+f.name, func() error {
		_, err := f.objects.Create(t.Context(), f.make(name), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // by an attempt whose answer was lost
			return nil
		}
		return err
	})
	e2e.Eventually(t, f.name+" are followed", func() error {
		if _, ok, err := f.informer.GetStore().GetByKey("default/" + name); err != nil || !ok {
			return fmt.Errorf("%s is not there (%v)", name, err)
		}
		return nil
	})
}

// equalsList waits until the informer has what a list has.
func (f *follower) equalsList(t *testing.T) {
	t.Helper()
	list, err := f.objects.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, o := range list.Items {
		want[o.GetName()] = o.GetResourceVersion()
	}
	e2e.Eventually(t, "the informer of "+f.name+" has what a list has", func() error {
		got := map[string]string{}
		for _, obj := range f.informer.GetStore().List() {
			if o := obj.(metav1.Object); o.GetNamespace() == "default" {
				got[o.GetName()] = o.GetResourceVersion()
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("has %v, want %v", got, want)
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.back) > 0 {
		t.Errorf("%s went back: %s", f.name, strings.Join(f.back, "; "))
	}
	t.Logf("%s: %d objects, %d names seen, at %d", f.name, len(want), len(f.newest), f.synced)
}

// gate keeps informers from coming back for as long as it is closed, as if the
// gateway were away for longer than it is.
type gate struct {
	http.RoundTripper
	closed *atomic.Bool
}

func (g gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.closed.Load() {
		return nil, syscall.ECONNREFUSED
	}
	return g.RoundTripper.RoundTrip(r)
}

// Informers of both servers, one of each kind of client, while their servers and
// the gateway are killed and etcd forgets its history: in the end each has what a
// list has, and none went back on the way.
func TestInformersThroughFaults(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	const group = "faults.example.com"
	client := e2e.DynamicClient(t, up.Config(t))
	var closed atomic.Bool
	gated := up.Config(t)
	gated.Wrap(func(rt http.RoundTripper) http.RoundTripper { return gate{rt, &closed} })
	typed := rest.CopyConfig(gated)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	custom := e2e.Define(t, client, group).Namespace("default")
	all := []*follower{{
		name: "widgets", objects: custom, make: func(name string) *unstructured.Unstructured { return e2e.Widget(group, name) },
		informer: dynamicinformer.NewDynamicSharedInformerFactory(e2e.DynamicClient(t, gated), 0).ForResource(e2e.WidgetsOf(group)).Informer(),
	}, {
		name: "secrets", objects: client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("default"),
		make: func(name string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}}}
		},
		informer: informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(typed), 0).Core().V1().Secrets().Informer(),
	}}
	stop := make(chan struct{})
	defer close(stop)
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	var written atomic.Int64
	for i, f := range all {
		f.start(t, stop)
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for n := 0; ctx.Err() == nil; n++ {
				// To its end: what is given up may still come about, after the list.
				if f.write(t.Context(), rnd, n) == nil {
					written.Add(1)
				}
			}
		})
	}
	forget := compactor(t, up.Etcd)
	for i, fault := range []func(){
		func() {},
		func() { up.Kill9(t, "crd") },
		forget,
		func() { up.Kill9(t, "gateway") },
		func() { up.Kill9(t, "core"); forget(); up.Kill9(t, "crd"); forget(); up.Kill9(t, "gateway") },
	} {
		closed.Store(true)
		fault()
		from := written.Load()
		e2e.Eventually(t, "there is something to miss", func() error {
			if n := written.Load() - from; n < 30 {
				return fmt.Errorf("%d of 30 writes", n)
			}
			return nil
		})
		closed.Store(false)
		for _, f := range all {
			f.follows(t, fmt.Sprint("after-fault-", i))
		}
	}
	cancel()
	writers.Wait()
	for _, f := range all {
		f.equalsList(t)
	}
	t.Logf("%d writes", written.Load())
	// Else it would not be watch-lists that stood all this.
	for server, gvr := range map[string]string{"crd": `group="faults.example.com",resource="widgets"`, "core": `group="",resource="secrets"`} {
		if !strings.Contains(up.Metrics(t, server), "apiserver_watch_list_duration_seconds_count{"+gvr) {
			t.Errorf("there was no watch-list of %s", gvr)
		}
	}
}

// compactor returns what has etcd forget everything but the present.
func compactor(t *testing.T, endpoint string) func() {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
		defer cancel()
		now, err := client.Get(ctx, "/")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Compact(ctx, now.Header.Revision); err != nil {
			t.Fatal(err)
		}
	}
}
