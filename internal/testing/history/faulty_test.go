package history_test

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/history"
	"portico/internal/testing/memstore"
	"portico/resource"
)

// faulty is a store that is wrong in one way.
type faulty struct {
	resource.Store
	// list, get and events change what is answered; nil: nothing is changed.
	list   func(resource.ListOptions, *resource.List)
	get    func(resource.Key, *resource.Object) *resource.Object
	events func([]resource.Event) []resource.Event
	// created is told of every object that was made.
	created func(*resource.Object)
	// watched is closed when as many watches as there are watchers were opened.
	// Nothing is made before: watches that begin late, as on a busy machine, are
	// told of objects only and of no change that could be told wrongly.
	watched chan struct{}
	watches atomic.Int64
}

// watchers is how many watch a faulty store.
const watchers = 8

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
	if err == nil && f.watches.Add(1) == watchers {
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

// every has f change something every nth time that it can. f reports whether it
// did.
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

// pair returns the first of two events of objects; -1 if there are none. Initial
// events come together, so there are some.
func pair(events []resource.Event) int {
	for i := 1; i < len(events); i++ {
		if events[i-1].Object != nil && events[i].Object != nil {
			return i - 1
		}
	}
	return -1
}

// drop loses one event of a type.
func drop(of resource.EventType) func([]resource.Event) ([]resource.Event, bool) {
	return func(events []resource.Event) ([]resource.Event, bool) {
		i := find(events, of)
		if i < 0 {
			return events, false
		}
		return append(events[:i], events[i+1:]...), true
	}
}

// fault is a way to be wrong, and an expression for what it is found out by.
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
		{"an added object is not told", w(3, drop(resource.Added)), "in the place of|comes after"},
		{"a change is not told", w(3, drop(resource.Modified)), "in the place of|comes after"},
		{"a removal is not told", w(3, drop(resource.Deleted)), "in the place of|comes after"},
		{"an event is told twice", w(3, func(events []resource.Event) ([]resource.Event, bool) {
			if find(events, resource.Modified) < 0 {
				return events, false
			}
			return append(events, events[len(events)-1]), true
		}), "comes (after|in the place of)"},
		{"events are told out of order", w(3, func(events []resource.Event) ([]resource.Event, bool) {
			i := pair(events)
			if i < 0 {
				return events, false
			}
			events[i], events[i+1] = events[i+1], events[i]
			return events, true
		}), "in the place of|comes after"},
		{"who leaves a selection is told to have changed", w(3, func(events []resource.Event) ([]resource.Event, bool) {
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

// readFaults shows states that were there before anybody could read: whoever
// reads late, even after the last write, is shown them, too.
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

// What finds nothing in a store that is wrong would find nothing in the engine
// either.
func TestFaultsAreFound(t *testing.T) {
	for _, fault := range append(watchFaults(), readFaults()...) {
		t.Run(fault.name, func(t *testing.T) {
			fault.store.Store, fault.store.watched = memstore.New().Store(history.Info()), make(chan struct{})
			sys := history.System{Doors: []history.Door{{
				Name: "faulty", Store: func() resource.Store { return fault.store },
			}}}
			_, err := history.Play(t.Context(), sys, history.Config{
				Seed: 1, Steps: 400, Watchers: watchers, Patience: 3 * time.Second,
			})
			if err == nil || !regexp.MustCompile(fault.found).MatchString(err.Error()) {
				t.Fatalf("found %.2000v, want %q", err, fault.found)
			}
		})
	}
}
