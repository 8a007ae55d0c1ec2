package watchcache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/watchcache"
)

// fakeFeed delivers the changes, and has the revision, that a test sets.
type fakeFeed struct {
	current atomic.Int64
	asked   atomic.Int64
	// answer makes RequestProgress deliver the current revision.
	answer atomic.Bool
	fail   atomic.Bool // Current fails

	mu      sync.Mutex
	sink    resource.FeedSink
	started chan struct{}
}

func newFakeFeed() *fakeFeed { return &fakeFeed{started: make(chan struct{})} }

func (f *fakeFeed) Run(ctx context.Context, sink resource.FeedSink) error {
	f.sink = sink
	close(f.started)
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeFeed) Current(context.Context) (int64, error) {
	if f.fail.Load() {
		return 0, errors.New("storage is away")
	}
	return f.current.Load(), nil
}

func (f *fakeFeed) RequestProgress(context.Context) error {
	f.asked.Add(1)
	if f.answer.Load() {
		go f.deliver(func(s resource.FeedSink) { s.Progress(f.current.Load()) })
	}
	return nil
}

func (f *fakeFeed) deliver(to func(s resource.FeedSink)) {
	<-f.started
	f.mu.Lock()
	defer f.mu.Unlock()
	to(f.sink)
}

func (f *fakeFeed) reset(rev int64, objects ...*resource.Object) {
	var state []resource.Change
	for _, o := range objects {
		state = append(state, resource.Change{Path: things.ObjectPath(o.Key()), Object: o, Revision: o.Revision})
	}
	f.current.Store(rev)
	f.deliver(func(s resource.FeedSink) { s.Reset(rev, state) })
}

func (f *fakeFeed) put(o *resource.Object) { f.putIn(things, o) }

func (f *fakeFeed) putIn(info *resource.Info, o *resource.Object) {
	f.current.Store(o.Revision)
	f.deliver(func(s resource.FeedSink) {
		s.Apply([]resource.Change{{Path: info.ObjectPath(o.Key()), Object: o, Revision: o.Revision}})
	})
}

func (f *fakeFeed) remove(name string, rev int64) {
	f.current.Store(rev)
	f.deliver(func(s resource.FeedSink) {
		s.Apply([]resource.Change{{Path: "things/a/" + name, Revision: rev}})
	})
}

// noStore is a store beneath that counts reads and fails.
type noStore struct {
	resource.Store
	info  *resource.Info
	calls atomic.Int64
	// unreadable is the error of Get for key.
	unreadable error
	key        resource.Key
}

var errBeneath = apierrors.NewInternalError(errors.New("the store beneath was read"))

func (s *noStore) Get(_ context.Context, key resource.Key, _ resource.At) (*resource.Object, error) {
	s.calls.Add(1)
	if s.unreadable != nil && key == s.key {
		return nil, s.unreadable
	}
	return nil, errBeneath
}

func (s *noStore) List(context.Context, resource.ListOptions) (*resource.List, error) {
	s.calls.Add(1)
	return nil, errBeneath
}

var others = &resource.Info{Versions: []string{"v1"}, Resource: "others", Kind: "Other", Namespaced: true}

var things = &resource.Info{Versions: []string{"v1"}, Resource: "things", Kind: "Thing", Namespaced: true}

// thing makes an object; labels are pairs.
func thing(name string, rev int64, pairs ...string) *resource.Object {
	l := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		l[pairs[i]] = pairs[i+1]
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Thing",
		"metadata": map[string]any{
			"name": name, "namespace": "a", "labels": l, "uid": "uid-" + name,
			"resourceVersion": strconv.FormatInt(rev, 10),
		},
	})
	if err != nil {
		panic(err)
	}
	o, err := resource.Parse(data)
	if err != nil {
		panic(err)
	}
	return o
}

// manyThings makes n objects, named x0000 and so on, at revisions from 1.
func manyThings(n int) (out []*resource.Object) {
	for i := range n {
		out = append(out, thing(fmt.Sprintf("x%04d", i), int64(i+1)))
	}
	return out
}

// faked is a running cache over a fakeFeed.
type faked struct {
	*testing.T
	cache   *watchcache.Cache
	feed    *fakeFeed
	beneath *noStore
	store   resource.Store
}

func fake(t *testing.T, cfg watchcache.Config) *faked {
	f := &faked{T: t, feed: newFakeFeed(), beneath: &noStore{info: things}}
	cfg.Feed = f.feed
	cfg.Store = func(*resource.Info) resource.Store { return f.beneath }
	f.cache = watchcache.New(cfg)
	f.store = f.cache.Store(things)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f.cache.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// events reads n events of a watch.
func (f *faked) events(w resource.Watcher, n int) []string {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), await.Patience())
	defer cancel()
	var out []string
	for len(out) < n {
		events, err := w.Next(ctx)
		if err != nil {
			f.Fatalf("after %v: %v", out, err)
		}
		for _, e := range events {
			out = append(out, text(f.T, e))
		}
	}
	return out
}

// text writes an event as type name@revision.
func text(t *testing.T, e resource.Event) string {
	t.Helper()
	kind := map[resource.EventType]string{
		resource.Added: "+", resource.Modified: "~", resource.Deleted: "-", resource.Bookmark: "bookmark", resource.Synced: "synced",
	}[e.Type]
	at := "@" + strconv.FormatInt(e.Revision, 10)
	if e.Object == nil {
		return kind + at
	}
	if e.Object.Revision != e.Revision {
		t.Errorf("event at %d has an object at %d", e.Revision, e.Object.Revision)
	}
	return kind + e.Object.Name + at
}

// ended waits for the error that ends a watch.
func (f *faked) ended(w resource.Watcher) error {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), await.Patience())
	defer cancel()
	for {
		if _, err := w.Next(ctx); err != nil {
			if _, again := w.Next(ctx); again != err {
				f.Errorf("after %v came %v", err, again)
			}
			return err
		}
	}
}

func (f *faked) watch(opts resource.WatchOptions) resource.Watcher {
	f.Helper()
	w, err := f.store.Watch(f.Context(), opts)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(w.Close)
	return w
}

func selector(t *testing.T, s string) resource.Selector {
	sel, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return resource.Selector{Labels: sel}
}

func (f *faked) names(opts resource.ListOptions) (string, *resource.List) {
	f.Helper()
	l, err := f.store.List(f.Context(), opts)
	if err != nil {
		f.Fatal(err)
	}
	out := ""
	for _, o := range l.Items {
		out += o.Name
	}
	return out, l
}
