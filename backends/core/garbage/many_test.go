package garbage

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// manyAPI is an API without owners that counts deletions and tells a graph of each.
type manyAPI struct {
	API     // nil: nothing is patched
	latency time.Duration
	graph   *Graph
	deleted []atomic.Int32 // by name
	all     atomic.Int32
	heap    atomic.Uint64 // the most that was in use
	done    chan struct{}
}

func (a *manyAPI) Get(_ context.Context, ref Ref) (*resource.Header, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, ref.Name)
}

func (a *manyAPI) Delete(_ context.Context, h *resource.Header, _ metav1.DeletionPropagation) error {
	i, err := strconv.Atoi(h.Name)
	if err != nil {
		return err
	}
	time.Sleep(a.latency)
	a.deleted[i].Add(1)
	a.graph.Remove(idOf(h))
	n := a.all.Add(1)
	if n%1000 == 1 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		a.heap.Store(max(a.heap.Load(), m.HeapAlloc))
	}
	if int(n) == len(a.deleted) {
		close(a.done)
	}
	return nil
}

// collectorOf returns a collector with an owner of many dependents.
func collectorOf(many int, latency time.Duration) (*manyAPI, *Collector) {
	api := &manyAPI{latency: latency, deleted: make([]atomic.Int32, many), done: make(chan struct{})}
	c := New(api, NewMetrics(), slog.New(slog.DiscardHandler))
	api.graph = c.Graph
	c.Graph.Set(&resource.Header{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "owner", UID: "owner"})
	for i := range many {
		c.Graph.Set(&resource.Header{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: strconv.Itoa(i), UID: "uid-" + strconv.Itoa(i),
			Owners: []resource.Owner{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}},
		})
	}
	return api, c
}

// Requests to an API group follow each other without a pause, as many at a time as it may have.
func TestRequestsOfOneGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rounds, latency = 10, 5 * time.Millisecond
		api, c := collectorOf(rounds*workersPerGroup, latency)
		ctx, cancel := context.WithCancel(t.Context())
		began, ended := time.Now(), make(chan struct{})
		c.Graph.Remove(ID{Kind: "ConfigMap", UID: "owner"})
		go func() { _ = c.Run(ctx); close(ended) }()
		<-api.done
		if took := time.Since(began); took != rounds*latency {
			t.Errorf("%v for %d rounds of %v", took, rounds, latency)
		}
		cancel()
		<-ended
	})
}

// Objects that wait for room in their API group have it as well if those before them are gone by
// then.
func TestRequestsAfterObjectsThatAreGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many, gone, latency = 160, 64, 5 * time.Millisecond
		api, c := collectorOf(many, latency)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		c.Graph.Remove(ID{Kind: "ConfigMap", UID: "owner"})
		go func() { _ = c.Run(ctx); close(ended) }()
		synctest.Wait() // all but those in flight wait
		c.mu.Lock()
		first := c.waiting[""][:gone]
		c.mu.Unlock()
		for _, id := range first {
			c.Graph.Remove(id)
		}
		time.Sleep(many * latency)
		if n := api.all.Load(); n != many-gone {
			t.Errorf("%d requests, want %d", n, many-gone)
		}
		cancel()
		<-ended
	})
}

// 100,000 dependents are deleted once each when their owner is gone, within 10 s and with at most
// 200 MiB of heap.
func TestHundredThousandDependents(t *testing.T) { // not parallel: it measures the heap
	const many, heap, patience = 100_000, 200 << 20, 10 * time.Second
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	api, c := collectorOf(many, 0)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began, ended := time.Now(), make(chan struct{})
	go func() { _ = c.Run(ctx); close(ended) }()
	c.Graph.Remove(ID{Kind: "ConfigMap", UID: "owner"})
	select {
	case <-api.done:
	case <-ctx.Done():
		t.Errorf("%d of %d dependents are deleted within %v", api.all.Load(), many, patience)
	}
	took := time.Since(began)
	cancel()
	<-ended
	for i := range api.deleted {
		if n := api.deleted[i].Load(); n != 1 {
			t.Fatalf("dependent %d is deleted %d times", i, n)
		}
	}
	used := int64(api.heap.Load()) - int64(before.HeapAlloc)
	if used <= 0 || used > heap {
		t.Errorf("%d bytes of heap, want at most %d", used, int64(heap))
	}
	t.Logf("%v, %d MB of heap", took, used>>20)
}
