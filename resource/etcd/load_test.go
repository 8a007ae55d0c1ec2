package etcd

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"
	"portico/internal/testing/storetest"
	"portico/resource"
)

// partialSink is a PartialSink that keeps the revision of each path.
type partialSink struct {
	write    func() // called before the first objects are added
	first    map[string]int64
	state    map[string]int64
	complete bool
	changed  chan map[string]int64 // the latest state once it is complete
}

func (s *partialSink) set(changes []resource.Change) {
	for _, c := range changes {
		if s.state[c.Path] = c.Revision; c.Object == nil {
			delete(s.state, c.Path)
		}
	}
	if s.complete {
		select {
		case <-s.changed:
		default:
		}
		s.changed <- maps.Clone(s.state)
	}
}

func (s *partialSink) Reset(int64, []resource.Change) { panic("the first reset has all objects") }

func (s *partialSink) ResetPart(rev int64, state []resource.Change, loading []string) {
	s.state = map[string]int64{}
	s.set(state)
	s.first = maps.Clone(s.state)
}

func (s *partialSink) Load(prefix string, objects []resource.Change, last bool) {
	if s.write != nil {
		s.write()
		s.write = nil
	}
	s.complete = last
	s.set(objects)
}

func (s *partialSink) Apply(changes []resource.Change) { s.set(changes) }
func (s *partialSink) Progress(int64)                  {}

// A feed delivers small resources first, then large ones with what was written meanwhile.
func TestLoader(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	large, small := storetest.Namespaced(), storetest.Namespaced()
	large.Path, small.Path = "a.example.com/large", "b.example.com/small"
	fill(t, c.Store(large), 200, 10)
	fill(t, c.Store(small), 20, 10)
	sink := &partialSink{changed: make(chan map[string]int64, 1)}
	written := make(chan struct{})
	sink.write = func() {
		defer close(written)
		for _, s := range []resource.Store{c.Store(large), c.Store(small)} {
			mustCreate(t, s, "late")
			for _, name := range []string{"x0001", "x0019"} {
				key := resource.Key{Namespace: setting(t, name, "").Namespace, Name: name}
				if _, err := s.Delete(t.Context(), key, nil); err != nil {
					t.Error(err)
				}
			}
			mustCreate(t, s, "x0019")
		}
	}
	f := c.Feed().(*feed)
	f.largeResource = 50
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = f.Run(ctx, sink) }()
	defer func() { cancel(); <-ended }()
	<-written
	want := map[string]int64{}
	for _, s := range []resource.Store{c.Store(large), c.Store(small)} {
		list, err := s.List(t.Context(), resource.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			want[s.Info().ObjectPath(o.Key())] = o.Revision
		}
	}
	for deadline := time.After(await.Patience()); ; {
		select {
		case got := <-sink.changed:
			if maps.Equal(got, want) {
				cancel()
				<-ended
				counts := map[bool]int{}
				for path := range sink.first {
					counts[strings.HasPrefix(path, "a.")]++
				}
				if counts[false] != 20 || counts[true] < 50 || counts[true] >= 200 {
					t.Errorf("the first state has %d objects of the small resource, %d of the large one", counts[false], counts[true])
				}
				return
			}
		case <-deadline:
			t.Fatal("the state is not that of etcd")
		}
	}
}
