package watchcache_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/watchcache"
)

// lateFeed delays another feed, and resets now and then.
type lateFeed struct {
	resource.Feed
	seed   uint64
	resets int
}

func (f *lateFeed) Run(ctx context.Context, to resource.FeedSink) error {
	rng := rand.New(rand.NewPCG(f.seed, 1))
	for n := 0; ctx.Err() == nil; n++ {
		if n > f.resets {
			return f.run(ctx, to, rng)
		}
		some, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(40))*time.Millisecond)
		_ = f.run(some, to, rng)
		cancel()
	}
	return ctx.Err()
}

// run delivers without interruption, in order; at the end what was not delivered is lost.
func (f *lateFeed) run(ctx context.Context, to resource.FeedSink, rng *rand.Rand) error {
	late := &lateSink{to: to, ops: make(chan func(), 1000)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case op := <-late.ops:
				if rng.IntN(3) == 0 {
					time.Sleep(time.Duration(rng.IntN(1500)) * time.Microsecond)
				}
				op()
			}
		}
	})
	err := f.Feed.Run(ctx, late)
	wg.Wait()
	return err
}

type lateSink struct {
	to  resource.FeedSink
	ops chan func()
}

func (s *lateSink) Reset(rev int64, state []resource.Change) {
	s.ops <- func() { s.to.Reset(rev, state) }
}
func (s *lateSink) Apply(changes []resource.Change) { s.ops <- func() { s.to.Apply(changes) } }
func (s *lateSink) Progress(rev int64)              { s.ops <- func() { s.to.Progress(rev) } }

func late(t *testing.T, seed uint64, resets int) *watchcache.Cache {
	m := memstore.New()
	c := watchcache.New(watchcache.Config{Feed: &lateFeed{m.Feed(), seed, resets}, Store: m.Store, BookmarkInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// write makes one random change to an object that has no other writer, and checks that
// latest reads show it.
func write(ctx context.Context, t *testing.T, s resource.Store, rng *rand.Rand, name string) {
	key := resource.Key{Namespace: "a", Name: name}
	next := thing(name, 0, "color", []string{"red", "blue"}[rng.IntN(2)], "n", fmt.Sprint(rng.Uint32()))
	remove := rng.IntN(4) == 0
	var made *resource.Object
	var err error
	if remove {
		made, err = s.Delete(ctx, key, nil)
	} else {
		made, err = s.Update(ctx, key, func(*resource.Object) (resource.Mutation, error) { return resource.Mutation{Object: next}, nil })
	}
	if remove && apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		t.Errorf("write %s: %v", name, err)
		return
	}
	got, err := s.Get(ctx, key, resource.At{})
	switch {
	case remove && !apierrors.IsNotFound(err):
		t.Errorf("%s was deleted at %d, a latest get: %v, %v", name, made.Revision, got, err)
	case !remove && (err != nil || got.Revision != made.Revision):
		t.Errorf("%s was written at %d, a latest get: %v, %v", name, made.Revision, got, err)
	}
	l, err := s.List(ctx, resource.ListOptions{})
	if err != nil || l.Revision < made.Revision {
		t.Errorf("latest list after a write at %d: %+v, %v", made.Revision, l, err)
	}
}

// replay watches a selection up to revision until, and returns its state then. When the
// watch expires, it starts again.
func replay(ctx context.Context, t *testing.T, s resource.Store, sel resource.Selector, until func() int64) map[string]int64 {
	for {
		state, err := replayOnce(ctx, s, sel, until)
		if err == nil {
			return state
		}
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("replay: %v", err)
			return nil
		}
	}
}

func replayOnce(ctx context.Context, s resource.Store, sel resource.Selector, until func() int64) (map[string]int64, error) {
	w, err := s.Watch(ctx, resource.WatchOptions{InitialEvents: true, Selector: sel, Bookmarks: true})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	state, last, synced := map[string]int64{}, int64(0), false
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if synced && e.Revision < last {
				return nil, fmt.Errorf("event at %d after %d", e.Revision, last)
			}
			if e.Object == nil {
				synced, last = true, e.Revision
				continue
			}
			if synced {
				last = e.Revision
			}
			_, known := state[e.Object.Name]
			if known != (e.Type != resource.Added) || !sel.Matches(e.Object) && e.Type != resource.Deleted {
				return nil, fmt.Errorf("event %d of %s at %d, known is %t", e.Type, e.Object.Name, e.Revision, known)
			}
			if e.Type == resource.Deleted {
				delete(state, e.Object.Name)
			} else {
				state[e.Object.Name] = e.Revision
			}
		}
		if end := until(); synced && end > 0 && last >= end {
			return state, nil
		}
	}
}

func TestRandomHistories(t *testing.T) {
	for _, tt := range []struct {
		seed   uint64
		resets int
	}{{1, 0}, {2, 0}, {3, 20}, {4, 20}} {
		t.Run(fmt.Sprintf("seed %d", tt.seed), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := late(t, tt.seed, tt.resets).Store(things)
			var mu sync.Mutex
			end := int64(0)
			until := func() int64 { mu.Lock(); defer mu.Unlock(); return end }
			selectors := []resource.Selector{{}, selector(t, "color=red"), selector(t, "color!=red")}
			states := make([]map[string]int64, 3*len(selectors))
			var watching, writing sync.WaitGroup
			for i := range states {
				watching.Go(func() { states[i] = replay(ctx, t, s, selectors[i%len(selectors)], until) })
			}
			for i := range 4 {
				writing.Go(func() {
					rng := rand.New(rand.NewPCG(tt.seed, uint64(i+10)))
					for range 60 {
						write(ctx, t, s, rng, fmt.Sprintf("w%d-%d", i, rng.IntN(5)))
					}
				})
			}
			writing.Wait()
			// Bookmarks advance the watches that the last changes do not match.
			l, err := s.List(ctx, resource.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			end = l.Revision
			mu.Unlock()
			watching.Wait()
			for i, got := range states {
				l, err := s.List(ctx, resource.ListOptions{Selector: selectors[i%len(selectors)]})
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]int64{}
				for _, o := range l.Items {
					want[o.Name] = o.Revision
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("replay %d has %v, the store %v", i, got, want)
				}
			}
		})
	}
}
