package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"portico/resource"
)

// Replica is a FeedSink that records the state of a feed and its violations of the
// contract. It is safe for concurrent use.
type Replica struct {
	mu      sync.Mutex
	changed chan struct{}
	objects map[string]*resource.Object
	// unreadable are the paths of unreadable objects.
	unreadable map[string]bool
	rev        int64
	resets     int
	asked      int // calls of Progress
	broken     []string
}

// NewReplica returns an empty replica.
func NewReplica() *Replica {
	return &Replica{changed: make(chan struct{}), objects: map[string]*resource.Object{}, unreadable: map[string]bool{}}
}

func (r *Replica) update(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Replica) complain(format string, args ...any) {
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// Reset implements resource.FeedSink.
func (r *Replica) Reset(rev int64, state []resource.Change) {
	r.update(func() {
		clear(r.objects)
		clear(r.unreadable)
		last := ""
		for _, c := range state {
			if c.Path <= last || c.Revision > rev || (c.Object == nil) == (c.Unreadable == nil) || c.Object != nil && c.Object.Revision != c.Revision {
				r.complain("reset at %d holds %+v after %q", rev, c, last)
			}
			last = c.Path
			r.set(c)
		}
		r.rev, r.resets = rev, r.resets+1
	})
}

// Apply implements resource.FeedSink.
func (r *Replica) Apply(changes []resource.Change) {
	r.update(func() {
		for i, c := range changes {
			if c.Revision < r.rev || i == 0 && c.Revision == r.rev {
				r.complain("change of %s at %d after %d", c.Path, c.Revision, r.rev)
			}
			r.rev = c.Revision
			known := r.objects[c.Path] != nil || r.unreadable[c.Path]
			switch {
			case c.Object == nil && c.Unreadable == nil && !known:
				r.complain("unknown %s is deleted at %d", c.Path, c.Revision)
			case c.Object == nil && c.Unreadable == nil:
			case c.Create == known || c.Object != nil && (c.Unreadable != nil || c.Object.Revision != c.Revision):
				r.complain("change of %s at %d: %+v, known is %t", c.Path, c.Revision, c, known)
			}
			r.set(c)
		}
	})
}

// set records the object of a path.
func (r *Replica) set(c resource.Change) {
	delete(r.objects, c.Path)
	delete(r.unreadable, c.Path)
	switch {
	case c.Unreadable != nil:
		r.unreadable[c.Path] = true
	case c.Object != nil:
		r.objects[c.Path] = c.Object
	}
}

// Unreadable returns the paths of unreadable objects, in order.
func (r *Replica) Unreadable() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.unreadable))
}

// Progress implements resource.FeedSink.
func (r *Replica) Progress(rev int64) {
	r.update(func() {
		if rev < r.rev {
			r.complain("progress to %d after %d", rev, r.rev)
		}
		r.rev, r.asked = rev, r.asked+1
	})
}

// Wait waits until ok returns true for the replica.
func (r *Replica) Wait(ctx context.Context, ok func(r *Replica) bool) error {
	for {
		r.mu.Lock()
		done, changed := ok(r), r.changed
		r.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("replica is at %d after %d resets: %w", r.rev, r.resets, ctx.Err())
		}
	}
}

// At is a condition for Wait: everything up to rev has arrived.
func At(rev int64) func(*Replica) bool {
	return func(r *Replica) bool { return r.resets > 0 && r.rev >= rev }
}

// Resets is a condition for Wait: Reset was called n times.
func Resets(n int) func(*Replica) bool { return func(r *Replica) bool { return r.resets >= n } }

// Broken returns the violations of the contract.
func (r *Replica) Broken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, b := range r.broken {
		errs = append(errs, errors.New(b))
	}
	return errors.Join(errs...)
}

// Compare checks that the replica holds exactly the objects of the stores.
func (r *Replica) Compare(ctx context.Context, t *testing.T, stores ...resource.Store) {
	t.Helper()
	if err := r.Broken(); err != nil {
		t.Errorf("the feed broke its word: %v", err)
	}
	want := map[string]int64{}
	for _, s := range stores {
		l, err := s.List(ctx, resource.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range l.Items {
			want[s.Info().ObjectPath(o.Key())] = o.Revision
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	got := map[string]int64{}
	for path, o := range r.objects {
		got[path] = o.Revision
	}
	if !maps.Equal(got, want) {
		t.Errorf("replica holds %v, the stores %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// OpenFeed makes an empty storage with a store of each resource and a feed that
// covers both.
type OpenFeed = func(t *testing.T, namespaced, cluster *resource.Info) (a, b resource.Store, feed resource.Feed)

// RunFeed checks a Feed against the Stores it shares its storage with.
func RunFeed(t *testing.T, open OpenFeed) {
	for _, tt := range feedTests {
		t.Run(tt.name, func(t *testing.T) { tt.f(t, startFeed(t, open)) })
	}
}

// feeding is a feed that runs into a replica.
type feeding struct {
	a, b    *subject // namespaced, cluster-scoped
	feed    resource.Feed
	replica *Replica
}

func startFeed(t *testing.T, open OpenFeed) *feeding {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	f := &feeding{a: &subject{T: t, ctx: ctx}, b: &subject{T: t, ctx: ctx}, replica: NewReplica()}
	f.a.Store, f.b.Store, f.feed = open(t, Namespaced(), ClusterScoped())
	f.a.mustCreate(key("a", "early"), "1")
	f.b.mustCreate(key("", "early"), "1")
	ended := make(chan error, 1)
	go func() { ended <- f.feed.Run(ctx, f.replica) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	return f
}

func (f *feeding) wait(ok func(*Replica) bool) {
	f.a.Helper()
	if err := f.replica.Wait(f.a.ctx, ok); err != nil {
		f.a.Fatal(err)
	}
}

func (f *feeding) compare() {
	f.a.Helper()
	f.replica.Compare(f.a.ctx, f.a.T, f.a, f.b)
}

var feedTests = []struct {
	name string
	f    func(t *testing.T, f *feeding)
}{
	{"StateThenChanges", func(t *testing.T, f *feeding) {
		f.wait(Resets(1))
		f.a.mustCreate(key("a", "x"), "1")
		f.b.mustCreate(key("", "x"), "1")
		f.b.mustDelete(key("", "early"))
		f.wait(At(f.a.mustSet(key("a", "x"), "2").Revision))
		f.compare()
	}},
	{"WhileWriting", func(t *testing.T, f *feeding) {
		var other sync.WaitGroup
		other.Go(func() {
			for i := range 4 * rounds() {
				if _, err := f.b.increment(key("", fmt.Sprint("g", i%7))); err != nil {
					t.Errorf("increment: %v", err)
				}
			}
		})
		f.a.writeAll()
		other.Wait()
		f.wait(At(f.a.mustCreate(key("a", "last"), "1").Revision))
		f.compare()
	}},
	{"CurrentCoversEveryWrite", func(t *testing.T, f *feeding) {
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for range rounds() {
					made, err := f.a.increment(key("a", fmt.Sprint("x", i)))
					if err != nil {
						t.Errorf("increment: %v", err)
						return
					}
					if rev, err := f.feed.Current(f.a.ctx); err != nil || rev < made.Revision {
						t.Errorf("current is %d (%v) after a write at %d", rev, err, made.Revision)
					}
				}
			})
		}
		wg.Wait()
	}},
	{"ProgressOnRequest", func(t *testing.T, f *feeding) {
		f.wait(Resets(1))
		last := f.a.mustCreate(key("a", "x"), "1")
		if err := f.feed.RequestProgress(f.a.ctx); err != nil {
			t.Fatal(err)
		}
		f.wait(func(r *Replica) bool { return r.asked > 0 && r.rev >= last.Revision })
		f.compare()
	}},
}
