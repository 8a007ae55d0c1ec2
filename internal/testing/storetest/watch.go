package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"portico/resource"
)

// watching is a watch that gives its events one by one.
type watching struct {
	resource.Watcher
	s       *subject
	pending []resource.Event
	// last is the revision up to which everything was seen.
	last int64
}

func (s *subject) mustWatch(opts resource.WatchOptions) *watching {
	s.Helper()
	w, err := s.Watch(s.ctx, opts)
	if err != nil {
		s.Fatalf("watch %+v: %v", opts, err)
	}
	s.Cleanup(w.Close)
	return &watching{Watcher: w, s: s}
}

// next returns the next event that is no bookmark.
func (w *watching) next() (resource.Event, error) {
	ctx, cancel := context.WithTimeout(w.s.ctx, patience)
	defer cancel()
	for {
		for len(w.pending) > 0 {
			e := w.pending[0]
			w.pending = w.pending[1:]
			if e.Type != resource.Bookmark {
				return e, nil
			}
		}
		events, err := w.Next(ctx)
		if err != nil {
			return resource.Event{}, err
		}
		if len(events) == 0 {
			return resource.Event{}, errors.New("next returned neither events nor an error")
		}
		w.pending = append(w.pending, events...)
	}
}

// want takes the next event and checks what it is.
func (w *watching) want(typ resource.EventType, k resource.Key, value string) resource.Event {
	w.s.Helper()
	e, err := w.next()
	if err != nil {
		w.s.Fatalf("next event: %v, want type %d of %s", err, typ, k)
	}
	if e.Object == nil {
		w.s.Fatalf("got event %+v without an object, want type %d of %s=%s", e, typ, k, value)
	}
	if got := w.s.value(e.Object); e.Type != typ || e.Object.Key() != k || got != value {
		w.s.Fatalf("got event type %d of %s=%s at %d, want type %d of %s=%s", e.Type, e.Object.Key(), got, e.Revision, typ, k, value)
	}
	if e.Object.Revision != e.Revision {
		w.s.Errorf("event at %d has an object at %d", e.Revision, e.Object.Revision)
	}
	return e
}

// wantSynced takes the end of the initial events.
func (w *watching) wantSynced() resource.Event {
	w.s.Helper()
	e, err := w.next()
	if err != nil || e.Type != resource.Synced || e.Object != nil || e.Revision <= 0 {
		w.s.Fatalf("got event %+v, %v; want Synced", e, err)
	}
	return e
}

// wantNothingBefore makes one more write and checks that its event is the
// next.
func (w *watching) wantNothingBefore(k resource.Key, labels ...string) {
	w.s.Helper()
	w.s.mustCreate(k, "end", labels...)
	w.want(resource.Added, k, "end")
}

var watchTests = []test{
	{"FromNow", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		s.mustCreate(key("a", "before"), "1")
		w := s.mustWatch(resource.WatchOptions{})
		made := s.mustCreate(k, "1")
		set := s.mustSet(k, "2")
		gone := s.mustDelete(k)
		for i, got := range []int64{
			w.want(resource.Added, k, "1").Revision,
			w.want(resource.Modified, k, "2").Revision,
			w.want(resource.Deleted, k, "2").Revision,
		} {
			if want := []int64{made.Revision, set.Revision, gone.Revision}[i]; got != want {
				t.Errorf("event %d at revision %d, the write was at %d", i, got, want)
			}
		}
	}},
	{"Since", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		made := s.mustCreate(k, "1")
		s.mustSet(k, "2")
		s.mustDelete(k)
		s.mustCreate(k, "3")
		w := s.mustWatch(resource.WatchOptions{Since: made.Revision, InitialEvents: true})
		w.want(resource.Modified, k, "2")
		w.want(resource.Deleted, k, "2")
		w.want(resource.Added, k, "3")
		w.wantNothingBefore(key("a", "y"))
	}},
	{"SinceAList", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		s.mustCreate(key("a", "x"), "1")
		w := s.mustWatch(resource.WatchOptions{Since: s.mustList(resource.ListOptions{}).Revision})
		w.wantNothingBefore(key("a", "y"))
	}},
	{"InitialEvents", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		s.mustCreate(key("b", "x"), "2")
		s.mustCreate(key("a", "y"), "1")
		last := s.mustSet(key("b", "x"), "3")
		w := s.mustWatch(resource.WatchOptions{InitialEvents: true})
		w.want(resource.Added, key("a", "y"), "1")
		w.want(resource.Added, key("b", "x"), "3")
		if e := w.wantSynced(); e.Revision < last.Revision {
			t.Errorf("synced at %d, the last write was at %d", e.Revision, last.Revision)
		}
		s.mustSet(key("a", "y"), "4")
		w.want(resource.Modified, key("a", "y"), "4")
	}},
	{"InitialEventsOfNothing", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		w := s.mustWatch(resource.WatchOptions{InitialEvents: true})
		w.wantSynced()
		w.wantNothingBefore(key("a", "x"))
	}},
	{"InitialEventsNotOlderThan", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		made := s.mustCreate(key("a", "x"), "1")
		at := resource.At{Freshness: resource.NotOlderThan, Revision: made.Revision}
		w := s.mustWatch(resource.WatchOptions{InitialEvents: true, At: at})
		w.want(resource.Added, key("a", "x"), "1")
		if e := w.wantSynced(); e.Revision < made.Revision {
			t.Errorf("synced at %d, asked for %d", e.Revision, made.Revision)
		}
		at.Revision += 1_000_000
		early, err := s.Watch(s.ctx, resource.WatchOptions{InitialEvents: true, At: at})
		if err == nil {
			defer early.Close()
			_, err = early.Next(s.ctx)
		}
		s.wantError("watch from the future", err, isTooLarge)
	}},
	{"OneNamespace", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		s.mustCreate(key("ab", "x"), "1")
		w := s.mustWatch(resource.WatchOptions{Namespace: "a", InitialEvents: true})
		w.wantSynced()
		s.mustSet(key("ab", "x"), "2")
		s.mustCreate(key("a-0", "x"), "3")
		s.mustDelete(key("ab", "x"))
		w.wantNothingBefore(key("a", "x"))
	}},
	{"ClusterScoped", func(t *testing.T, s *subject) {
		s.on(ClusterScoped())
		w := s.mustWatch(resource.WatchOptions{InitialEvents: true})
		w.wantSynced()
		s.mustCreate(key("", "x"), "1")
		w.want(resource.Added, key("", "x"), "1")
		s.mustDelete(key("", "x"))
		w.want(resource.Deleted, key("", "x"), "1")
	}},
	{"SelectorMapsEvents", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "x")
		s.mustCreate(key("a", "other"), "0", "color", "blue")
		w := s.mustWatch(resource.WatchOptions{InitialEvents: true, Selector: byLabel(t, "color=red")})
		w.wantSynced()
		s.mustCreate(k, "1", "color", "blue") // outside
		s.mustSet(k, "2", "color", "blue")    // still outside
		s.mustSet(k, "3", "color", "red")     // enters
		s.mustSet(k, "4", "color", "red")     // changes inside
		left := s.mustSet(k, "5", "color", "blue")
		s.mustSet(k, "6", "color", "red") // enters again
		s.mustDelete(k)
		w.want(resource.Added, k, "3")
		w.want(resource.Modified, k, "4")
		if e := w.want(resource.Deleted, k, "4"); e.Revision != left.Revision {
			t.Errorf("left the selection at %d, event says %d", left.Revision, e.Revision)
		}
		w.want(resource.Added, k, "6")
		w.want(resource.Deleted, k, "6")
		w.wantNothingBefore(key("a", "z"), "color", "red")
	}},
	{"SelectorOfOneName", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		s.mustCreate(key("a", "x"), "1")
		s.mustCreate(key("a", "xy"), "1")
		w := s.mustWatch(resource.WatchOptions{Namespace: "a", InitialEvents: true, Selector: byField("metadata.name=x")})
		w.want(resource.Added, key("a", "x"), "1")
		w.wantSynced()
		s.mustSet(key("a", "xy"), "2")
		s.mustSet(key("a", "x"), "2")
		w.want(resource.Modified, key("a", "x"), "2")
	}},
	{"NoChangeNoEvent", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		s.mustCreate(key("a", "x"), "1")
		w := s.mustWatch(resource.WatchOptions{InitialEvents: true})
		w.want(resource.Added, key("a", "x"), "1")
		w.wantSynced()
		if _, err := s.Update(s.ctx, key("a", "x"), func(cur *resource.Object) (resource.Mutation, error) {
			return resource.Mutation{Object: cur}, nil
		}); err != nil {
			t.Fatal(err)
		}
		w.wantNothingBefore(key("a", "y"))
	}},
	{"Close", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		w := s.mustWatch(resource.WatchOptions{})
		ended := make(chan error, 1)
		go func() {
			_, err := w.next()
			ended <- err
		}()
		w.Close()
		w.Close()
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("Next after Close: %v, want io.EOF", err)
		}
		if _, err := w.next(); !errors.Is(err, io.EOF) {
			t.Errorf("second Next after Close: %v, want io.EOF", err)
		}
	}},
	{"NextEndsWithItsContext", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		w := s.mustWatch(resource.WatchOptions{})
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Next with an ended context: %v", err)
		}
	}},
	{"ManyInitialEvents", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		const n = 600
		var all sync.WaitGroup
		for first := range writers {
			all.Go(func() {
				for i := first; i < n; i += writers {
					k := key("a", fmt.Sprintf("x%04d", i))
					if _, err := s.Create(s.ctx, k, s.make(k, "1"), 0); err != nil {
						t.Errorf("create %s: %v", k, err)
						return
					}
				}
			})
		}
		all.Wait()
		w := s.mustWatch(resource.WatchOptions{InitialEvents: true})
		for i := range n {
			w.want(resource.Added, key("a", fmt.Sprintf("x%04d", i)), "1")
		}
		w.wantSynced()
	}},
}
