package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// writers is the number of concurrent writers.
const writers = 8

// rounds is the number of writes of each.
func rounds() int {
	if testing.Short() {
		return 10
	}
	return 25
}

// increment adds one to an object's value, creating it with 1.
func (s *subject) increment(k resource.Key) (*resource.Object, error) {
	return s.Update(s.ctx, k, func(cur *resource.Object) (resource.Mutation, error) {
		n := 0
		if cur != nil {
			var err error
			if n, err = strconv.Atoi(s.value(cur)); err != nil {
				return resource.Mutation{}, err
			}
		}
		return resource.Mutation{Object: s.make(k, strconv.Itoa(n+1))}, nil
	})
}

var togetherTests = []test{
	{"NoUpdateIsLost", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		k := key("a", "counter")
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range rounds() {
					if _, err := s.increment(k); err != nil {
						t.Errorf("increment: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		got, err := s.Get(s.ctx, k, resource.At{})
		if err != nil || s.value(got) != strconv.Itoa(writers*rounds()) {
			t.Errorf("counter is %v (%v), want %d", got, err, writers*rounds())
		}
	}},
	{"OneCreateWins", func(t *testing.T, s *subject) {
		s.on(Namespaced())
		for i := range rounds() {
			k := key("a", fmt.Sprint("x", i))
			results := make(chan error, writers)
			for range writers {
				go func() {
					_, err := s.Create(s.ctx, k, s.make(k, "1"), 0)
					results <- err
				}()
			}
			won := 0
			for range writers {
				if err := <-results; err == nil {
					won++
				} else if !apierrors.IsAlreadyExists(err) {
					t.Errorf("create: %v", err)
				}
			}
			if won != 1 {
				t.Fatalf("%d of %d creates succeeded", won, writers)
			}
		}
	}},
	{"WatchersSeeEverythingInOrder", testWatchersSeeEverything},
	{"ListThenWatchMissesNothing", testListThenWatch},
}

// write changes the keys of one writer: each is created, incremented, deleted and created
// again.
func (s *subject) write(writer int) error {
	for i := range rounds() {
		k := key("ns"+strconv.Itoa(i%2), fmt.Sprintf("w%d-%d", writer, i%5))
		if i%7 == 6 {
			if _, err := s.Delete(s.ctx, k, nil); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		} else if _, err := s.increment(k); err != nil {
			return err
		}
	}
	return nil
}

// model is the state of a watcher: values by key.
type model map[string]string

func (s *subject) apply(m model, e resource.Event) error {
	k, v := e.Object.Key().String(), s.value(e.Object)
	old, known := m[k]
	switch e.Type {
	case resource.Added:
		if known {
			return fmt.Errorf("%s added twice (%s, %s)", k, old, v)
		}
		m[k] = v
	case resource.Modified:
		// Each object has one writer, which increments it: a gap is a lost event.
		was, _ := strconv.Atoi(old)
		if is, _ := strconv.Atoi(v); !known || is != was+1 {
			return fmt.Errorf("%s goes from %q to %q", k, old, v)
		}
		m[k] = v
	case resource.Deleted:
		if !known || old != v {
			return fmt.Errorf("%s=%s deleted as %s", k, old, v)
		}
		delete(m, k)
	default:
		return fmt.Errorf("unexpected event %+v", e)
	}
	return nil
}

// follow applies events to m until that of an object called "end", the last of all.
func (w *watching) follow(m model) error {
	for {
		e, err := w.next()
		if err != nil {
			return err
		}
		if e.Revision <= w.last {
			return fmt.Errorf("event at %d after %d", e.Revision, w.last)
		}
		w.last = e.Revision
		if e.Object.Name == "end" {
			return nil
		}
		if err := w.s.apply(m, e); err != nil {
			return err
		}
	}
}

func testWatchersSeeEverything(t *testing.T, s *subject) {
	s.on(Namespaced())
	const watchers = 4
	results := make(chan error, watchers)
	models := make([]model, watchers)
	for i := range watchers {
		models[i] = model{}
		w := s.mustWatch(resource.WatchOptions{})
		go func() { results <- w.follow(models[i]) }()
	}
	s.writeAll()
	s.mustCreate(key("zz", "end"), "1")
	for range watchers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	s.wantModels(models)
}

// testListThenWatch starts watches from lists while objects are written. The last object is
// created when every watch has begun, so that each of them receives it.
func testListThenWatch(t *testing.T, s *subject) {
	s.on(Namespaced())
	const watchers = 4
	begun := make(chan struct{}, watchers)
	results := make(chan error, watchers)
	models := make([]model, watchers)
	if err := s.write(0); err != nil {
		t.Fatal(err)
	}
	for i := range watchers {
		models[i] = model{}
		go func() { results <- s.listThenFollow(models[i], begun) }()
	}
	for len(begun) < watchers {
		s.writeAll()
	}
	s.mustCreate(key("zz", "end"), "1")
	for range watchers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	s.wantModels(models)
}

// listThenFollow reads a list into m and applies the events after it. It sends to begun once
// the watch has started or failed.
func (s *subject) listThenFollow(m model, begun chan<- struct{}) error {
	w, rev, err := s.listThenWatch(m)
	begun <- struct{}{}
	if err != nil {
		return err
	}
	defer w.Close()
	return (&watching{Watcher: w, s: s, last: rev}).follow(m)
}

func (s *subject) listThenWatch(m model) (w resource.Watcher, rev int64, err error) {
	l, err := s.List(s.ctx, resource.ListOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("list: %w", err)
	}
	for _, o := range l.Items {
		m[o.Key().String()] = s.value(o)
	}
	if w, err = s.Watch(s.ctx, resource.WatchOptions{Since: l.Revision}); err != nil {
		return nil, 0, fmt.Errorf("watch since %d: %w", l.Revision, err)
	}
	return w, l.Revision, nil
}

// writeAll runs all writers but number 0, which is the caller's.
func (s *subject) writeAll() {
	s.Helper()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			if err := s.write(i + 1); err != nil {
				s.Errorf("writer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// wantModels compares the states of watchers with a list.
func (s *subject) wantModels(models []model) {
	s.Helper()
	want := model{}
	for _, o := range s.mustList(resource.ListOptions{}).Items {
		if o.Name != "end" {
			want[o.Key().String()] = s.value(o)
		}
	}
	for i, m := range models {
		if !maps.Equal(m, want) {
			s.Errorf("watcher %d has %v, want %v as in the list", i, slices.Sorted(maps.Keys(m)), slices.Sorted(maps.Keys(want)))
		}
	}
}
