package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/loop"
)

var things = &resource.Info{Versions: []string{"v1"}, Resource: "things", Kind: "Thing", Namespaced: true}

// flakyStore is a store with faults that a test sets.
type flakyStore struct {
	resource.Store
	// refuse, if set, returns the error of a watch.
	refuse func(resource.WatchOptions) error
	// down makes everything fail.
	down    atomic.Bool
	watches chan resource.WatchOptions
	cut     atomic.Pointer[context.CancelCauseFunc] // ends the running watch
}

func newFlakyStore() *flakyStore {
	return &flakyStore{Store: memstore.New().Store(things), watches: make(chan resource.WatchOptions, 1000)}
}

func (m *flakyStore) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	if m.down.Load() {
		return nil, resource.Unavailable("down", 1)
	}
	return m.Store.List(ctx, opts)
}

func (m *flakyStore) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	if m.down.Load() {
		return nil, resource.Unavailable("down", 1)
	}
	if m.refuse != nil {
		if err := m.refuse(opts); err != nil {
			return nil, err
		}
	}
	m.watches <- opts
	w, err := m.Store.Watch(ctx, opts)
	ctx, cut := context.WithCancelCause(ctx)
	m.cut.Store(&cut)
	return &cuttable{w, ctx}, err
}

// end ends the running watch with err.
func (m *flakyStore) end(err error) { (*m.cut.Load())(err) }

type cuttable struct {
	resource.Watcher
	life context.Context
}

func (w *cuttable) Next(ctx context.Context) ([]resource.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	if w.life.Err() != nil {
		return nil, context.Cause(w.life)
	}
	events, err := w.Watcher.Next(ctx)
	if w.life.Err() != nil {
		return nil, context.Cause(w.life)
	}
	return events, err
}

func (m *flakyStore) set(t *testing.T, name string) {
	t.Helper()
	data := fmt.Sprintf(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":%q,"namespace":"a","labels":{"n":"%d"}}}`, name, time.Now().UnixNano())
	o, err := resource.Parse([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Update(t.Context(), o.Key(), func(*resource.Object) (resource.Mutation, error) { return resource.Mutation{Object: o}, nil })
	if err != nil {
		t.Fatal(err)
	}
}

func (m *flakyStore) remove(t *testing.T, name string) {
	t.Helper()
	if _, err := m.Delete(t.Context(), resource.Key{Namespace: "a", Name: name}, nil); err != nil {
		t.Fatal(err)
	}
}

// follow follows m and returns the snapshots as lists of names.
func follow(t *testing.T, m resource.Reader) <-chan string {
	got := make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- loop.Follow(ctx, m, loop.FollowOptions{Logger: slog.New(slog.DiscardHandler)}, func(s loop.Snapshot) {
			var names []string
			for _, o := range s.Items {
				names = append(names, o.Name)
				if o.Revision > s.Revision {
					t.Errorf("snapshot at %d holds %s at %d", s.Revision, o.Name, o.Revision)
				}
			}
			got <- strings.Join(names, " ")
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("follow ended with %v", err)
		}
	})
	return got
}

// published returns the snapshots published within the time.
func published(got <-chan string, d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	var out []string
	for len(got) > 0 {
		out = append(out, <-got)
	}
	return out
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// beginWindow changes an object, which is the only one, so that the next changes are within a
// window.
func beginWindow(t *testing.T, m *flakyStore, got <-chan string, name string) {
	t.Helper()
	m.set(t, name)
	want(t, "changed", published(got, 0), name)
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFlakyStore()
		got := follow(t, m)
		want(t, "empty store", published(got, time.Second), "")
		m.set(t, "b")
		want(t, "first object", published(got, time.Second), "b")
		m.set(t, "a")
		want(t, "after quiet, at once", published(got, 0), "a b")
		for _, name := range []string{"c", "d"} {
			m.set(t, name)
		}
		m.remove(t, "b")
		want(t, "at once after a change", published(got, 0))
		want(t, "a burst", published(got, time.Second), "a c d")
		time.Sleep(time.Hour)
		want(t, "an hour of nothing", published(got, time.Second))
	})
}

// A loop created an object because the last snapshot lacked it; its deletion wakes the loop,
// although no snapshot had the object.
func TestFollowPublishesCreationAndDeletionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFlakyStore()
		m.set(t, "a")
		got := follow(t, m)
		want(t, "at first", published(got, time.Second), "a")
		beginWindow(t, m, got, "a")
		m.set(t, "b")
		m.remove(t, "b")
		want(t, "came and went", published(got, time.Second), "a")
		beginWindow(t, m, got, "a")
		m.set(t, "b")
		m.end(apierrors.NewResourceExpired("too old"))
		m.remove(t, "b")
		want(t, "came and went while there was no watch", published(got, time.Minute), "a")
		m.end(apierrors.NewResourceExpired("too old"))
		want(t, "listed again, with nothing new", published(got, time.Minute))
	})
}

func TestFollowReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFlakyStore()
		m.set(t, "a")
		got := follow(t, m)
		want(t, "at first", published(got, time.Second), "a")
		<-m.watches
		for _, err := range []error{io.EOF, resource.Unavailable("gone", 1)} {
			m.end(err)
			want(t, "reconnected", published(got, time.Minute))
			if opts := <-m.watches; opts.Since == 0 || opts.InitialEvents {
				t.Errorf("after %v it begins again: %+v", err, opts)
			}
		}
		beginWindow(t, m, got, "a")
		m.end(apierrors.NewResourceExpired("too old"))
		m.remove(t, "a")
		m.set(t, "b")
		want(t, "expired", published(got, time.Minute), "b")
		if opts := <-m.watches; opts.Since != 0 || !opts.InitialEvents {
			t.Errorf("after 410 it goes on: %+v", opts)
		}
	})
}

// endingStore is a store with watches that deliver one event and end with an error.
type endingStore struct {
	*flakyStore
	err error
}

func (m *endingStore) Watch(_ context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	m.watches <- opts
	e := resource.Event{Type: resource.Bookmark, Revision: 1}
	if opts.InitialEvents {
		e.Type = resource.Synced
	}
	return &endingWatcher{[]resource.Event{e}, m.err}, nil
}

type endingWatcher struct {
	events []resource.Event
	err    error
}

func (w *endingWatcher) Next(context.Context) ([]resource.Event, error) {
	if events := w.events; events != nil {
		w.events = nil
		return events, nil
	}
	return nil, w.err
}

func (*endingWatcher) Close() {}

// Watches that end one after the other are opened ever more seldom, whatever they deliver.
func TestFollowBoundsReconnects(t *testing.T) {
	for name, err := range map[string]error{"end": io.EOF, "expired": apierrors.NewResourceExpired("too old"), "error": errors.New("broke off")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &endingStore{newFlakyStore(), err}
				got := follow(t, m)
				want(t, "at first", published(got, time.Minute), "")
				// The pauses add up to 12.7 s, or half of it, and are 10 s then, or half of it.
				if n := len(m.watches); n < 10 || n > 25 {
					t.Errorf("%d watches in a minute", n)
				}
			})
		})
	}
}

// A watch that ends after a while is followed by the next one at once.
func TestFollowReconnectsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFlakyStore()
		got := follow(t, m)
		for range 3 {
			published(got, time.Hour)
			<-m.watches
			m.end(io.EOF)
			if published(got, 0); len(m.watches) != 1 {
				t.Error("there is no watch")
			}
		}
	})
}

func TestFollowKeepsLastGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFlakyStore()
		m.down.Store(true)
		got := follow(t, m)
		want(t, "never reached", published(got, time.Hour))
		m.set(t, "a")
		m.down.Store(false)
		want(t, "reached", published(got, time.Minute), "a")
		m.down.Store(true)
		m.end(apierrors.NewResourceExpired("too old"))
		m.set(t, "b")
		want(t, "away", published(got, time.Hour))
		m.down.Store(false)
		want(t, "back", published(got, time.Minute), "a b")
	})
}

func TestFollowWithoutWatchList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFlakyStore()
		m.refuse = func(opts resource.WatchOptions) error {
			if opts.InitialEvents {
				return apierrors.NewInvalid(things.GVK("v1").GroupKind(), "", nil)
			}
			return nil
		}
		m.set(t, "a")
		got := follow(t, m)
		want(t, "listed", published(got, time.Minute), "a")
		m.set(t, "b")
		want(t, "watched", published(got, time.Second), "a b")
		m.end(apierrors.NewResourceExpired("too old"))
		m.remove(t, "a")
		want(t, "listed again", published(got, time.Minute), "b")
	})
}

// Changes during a publish are published together.
func TestFollowCoalescesWhilePublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFlakyStore()
		entered, leave := make(chan int), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = loop.Follow(ctx, m, loop.FollowOptions{Window: -1}, func(s loop.Snapshot) {
				entered <- len(s.Items)
				<-leave
			})
		}()
		<-entered
		for i := range 100 {
			m.set(t, fmt.Sprint("x", i))
		}
		synctest.Wait()
		leave <- struct{}{}
		if n := <-entered; n != 100 {
			t.Errorf("second snapshot holds %d items", n)
		}
		cancel()
		leave <- struct{}{}
	})
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A store that reconnects causes no warning; one that stays unreachable does at intervals.
func TestFollowWarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFlakyStore()
		var log lockedBuffer
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		options := loop.FollowOptions{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
		go func() { ended <- loop.Follow(ctx, m, options, func(loop.Snapshot) {}) }()
		synctest.Wait()
		for range 5 {
			m.end(errors.New("broke off"))
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		if log.String() != "" {
			t.Errorf("it came back each time: %s", &log)
		}
		m.down.Store(true)
		m.end(errors.New("broke off"))
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if log.String() != "" {
			t.Errorf("too early: %s", &log)
		}
		time.Sleep(60 * time.Second)
		synctest.Wait()
		cancel()
		<-ended
		if n := strings.Count(log.String(), "error=down"); n != 2 {
			t.Errorf("%d warnings in 69 s, want 2:\n%s", n, &log)
		}
	})
}
