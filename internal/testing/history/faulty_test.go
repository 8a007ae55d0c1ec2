package history_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/history"
	"portico/internal/testing/memstore"
	"portico/resource"
)

// faulty is a store with one fault.
type faulty struct {
	resource.Store
	// list, get and events change responses; nil changes none.
	list   func(resource.ListOptions, *resource.List)
	get    func(resource.Key, *resource.Object) *resource.Object
	events func([]resource.Event) []resource.Event
	// created is called with every created object.
	created func(*resource.Object)
	// watched is closed when all watchers have opened a watch. No object is created before:
	// watches that begin late get objects only, and no change that could be wrong.
	watched chan struct{}
	watches atomic.Int64
}

func (f *faulty) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	select {
	case <-f.watched:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	o, err := f.Store.Create(ctx, key, obj, ttl)
	if err == nil && f.created != nil {
		f.created(o)
	}
	return o, err
}

func (f *faulty) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	l, err := f.Store.List(ctx, opts)
	if err == nil && f.list != nil {
		f.list(opts, l)
	}
	return l, err
}

func (f *faulty) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	o, err := f.Store.Get(ctx, key, at)
	if err == nil && f.get != nil {
		o = f.get(key, o)
	}
	return o, err
}

func (f *faulty) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	w, err := f.Store.Watch(ctx, opts)
	if err == nil && f.watches.Add(1) == history.Watchers {
		close(f.watched)
	}
	if err == nil && f.events != nil {
		w = faultyWatcher{w, f}
	}
	return w, err
}

type faultyWatcher struct {
	resource.Watcher
	store *faulty
}

func (w faultyWatcher) Next(ctx context.Context) ([]resource.Event, error) {
	for {
		events, err := w.Watcher.Next(ctx)
		if err != nil {
			return nil, err
		}
		if events = w.store.events(append([]resource.Event(nil), events...)); len(events) > 0 {
			return events, nil
		}
	}
}

// every calls f, which reports whether it has changed events, and uses every nth change.
func every(n int64, f func([]resource.Event) ([]resource.Event, bool)) func([]resource.Event) []resource.Event {
	var can atomic.Int64
	return func(events []resource.Event) []resource.Event {
		changed, ok := f(append([]resource.Event(nil), events...))
		if ok && can.Add(1)%n == 0 {
			return changed
		}
		return events
	}
}

// find returns the first event of a type; -1 if there is none.
func find(events []resource.Event, of resource.EventType) int {
	for i, e := range events {
		if e.Type == of {
			return i
		}
	}
	return -1
}

// pair returns the index of the first of two events of objects; -1 if there are none.
// Initial events come together, so there are some.
func pair(events []resource.Event) int {
	for i := 1; i < len(events); i++ {
		if events[i-1].Object != nil && events[i].Object != nil {
			return i - 1
		}
	}
	return -1
}

// drop removes one event of a type.
func drop(of resource.EventType) func([]resource.Event) ([]resource.Event, bool) {
	return func(events []resource.Event) ([]resource.Event, bool) {
		i := find(events, of)
		if i < 0 {
			return events, false
		}
		return append(events[:i], events[i+1:]...), true
	}
}

// fault is a fault of a store, and an expression for the error that reports it.
type fault struct {
	name  string
	store *faulty
	found string
}

func watchFaults() []fault {
	w := func(n int64, f func([]resource.Event) ([]resource.Event, bool)) *faulty {
		return &faulty{events: every(n, f)}
	}
	return []fault{
		{"an ADDED is missing", w(3, drop(resource.Added)), "in the place of|comes after"},
		{"a MODIFIED is missing", w(3, drop(resource.Modified)), "in the place of|comes after"},
		{"a DELETED is missing", w(3, drop(resource.Deleted)), "in the place of|comes after"},
		{"an event is repeated", w(3, func(events []resource.Event) ([]resource.Event, bool) {
			if find(events, resource.Modified) < 0 {
				return events, false
			}
			return append(events, events[len(events)-1]), true
		}), "comes (after|in the place of)"},
		{"events are out of order", w(3, func(events []resource.Event) ([]resource.Event, bool) {
			i := pair(events)
			if i < 0 {
				return events, false
			}
			events[i], events[i+1] = events[i+1], events[i]
			return events, true
		}), "in the place of|comes after"},
		{"an object that leaves a selection is MODIFIED", w(3, func(events []resource.Event) ([]resource.Event, bool) {
			i := find(events, resource.Deleted)
			if i >= 0 {
				events[i].Type = resource.Modified
			}
			return events, i >= 0
		}), "in the place of|comes after"},
		{"a bookmark comes early", w(3, func(events []resource.Event) ([]resource.Event, bool) {
			i := find(events, resource.Modified)
			if i < 0 {
				return events, false
			}
			early := resource.Event{Type: resource.Bookmark, Revision: events[i].Revision}
			return slices.Insert(events, i, early), true
		}), "BOOKMARK"},
	}
}

// readFaults are states from before the first read, so that every read shows them, also the
// last one.
func readFaults() []fault {
	var firstObjects sync.Map
	return []fault{
		{"a list is an old one", &faulty{list: func(opts resource.ListOptions, l *resource.List) {
			if opts.Limit == 0 && opts.Namespace == "" && opts.Selector.Empty() && opts.At == (resource.At{}) {
				*l = resource.List{Revision: 1}
			}
		}}, "had to see"},
		{"a list lacks its last object", &faulty{list: func(_ resource.ListOptions, l *resource.List) {
			if n := len(l.Items); n > 0 && l.Revision > 50 && l.Continue == "" {
				l.Items = l.Items[:n-1]
			}
		}}, "ends before"},
		{"an object is an old one", &faulty{
			created: func(o *resource.Object) { firstObjects.LoadOrStore(o.Key(), o) },
			get: func(key resource.Key, o *resource.Object) *resource.Object {
				if first, ok := firstObjects.Load(key); ok {
					return first.(*resource.Object)
				}
				return o
			},
		}, "had to see"},
	}
}

// The checks report every fault of a faulty store.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, fault := range append(watchFaults(), readFaults()...) {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			fault.store.Store, fault.store.watched = memstore.New().Store(history.Info()), make(chan struct{})
			sys := history.System{Doors: []history.Door{{
				Name: "faulty", Store: func() resource.Store { return fault.store },
			}}}
			err := history.Play(t.Context(), sys, history.Config{
				Seed: 1, Steps: 400, Patience: 3 * time.Second,
			})
			if err == nil || !regexp.MustCompile(fault.found).MatchString(err.Error()) {
				t.Fatalf("found %.2000v, want %q", err, fault.found)
			}
		})
	}
}

// forgetting acknowledges deletions and does not make them.
type forgetting struct{ resource.Store }

func (f forgetting) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	return f.Store.Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		m, err := mutate(cur)
		if m.Delete {
			m = resource.Mutation{Object: cur}
		}
		return m, err
	})
}

// Deletions that are acknowledged without a revision are judged by what was deleted during them.
func TestSilentDeletions(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"", "nothing deleted it"} {
		m := memstore.New()
		store := m.Store(history.Info())
		if want != "" {
			store = forgetting{store}
		}
		err := history.Play(t.Context(), history.System{
			Doors:   []history.Door{{Name: "silent", Store: func() resource.Store { return store }, Silent: true}},
			Journal: journalOf(t, m.Feed()).Read,
		}, history.Config{Seed: 1, Steps: 400, Patience: 3 * time.Second})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("found %.2000v, want %q", err, want)
		}
	}
}
