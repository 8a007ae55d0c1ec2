package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// benchObject is about as large as a custom resource is.
func benchObject(b *testing.B, name string) *resource.Object {
	b.Helper()
	obj, err := resource.Parse(fmt.Appendf(nil,
		`{"apiVersion":"storetest.portico.dev/v1","kind":"Setting","metadata":{"namespace":"a","name":%q,"uid":"8a9b6d2e-0f5c-4b0e-9a58-3c1b3c6f9d11","labels":{"app":"bench"}},"data":{"v":%q}}`,
		name, strings.Repeat("x", 3300)))
	if err != nil {
		b.Fatal(err)
	}
	return obj
}

// BenchmarkCreate is one transaction after the other; raw is what etcd's client
// alone costs.
func BenchmarkCreate(b *testing.B) {
	s := newServer(b)
	b.Run("store", func(b *testing.B) {
		store := s.client(b).Store(storetest.Namespaced())
		objects := make([]*resource.Object, b.N)
		for i := range objects {
			objects[i] = benchObject(b, fmt.Sprint("x", i))
		}
		b.ReportAllocs()
		b.ResetTimer()
		for _, o := range objects {
			if _, err := store.Create(b.Context(), o.Key(), o, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("raw", func(b *testing.B) {
		c := s.client(b)
		value := string(benchObject(b, "x").Data)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			if _, err := c.etcd.Put(b.Context(), c.prefix+"storetest.portico.dev/settings/a/x"+fmt.Sprint(i), value); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkUpdate starts from a hint, as writes through a cache do.
func BenchmarkUpdate(b *testing.B) {
	store := newServer(b).client(b).Store(storetest.Namespaced()).(resource.Hinted)
	next := [2]*resource.Object{benchObject(b, "x"), nil}
	var err error
	if next[1], err = resource.Parse([]byte(strings.Replace(string(next[0].Data), "bench", "other", 1))); err != nil {
		b.Fatal(err)
	}
	cur, err := store.Create(b.Context(), next[0].Key(), next[0], 0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		cur, err = store.UpdateFrom(b.Context(), cur.Key(), cur, func(*resource.Object) (resource.Mutation, error) {
			return resource.Mutation{Object: next[(i+1)%2]}, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// counter is a sink that counts.
type counter struct {
	changes atomic.Int64
	rev     atomic.Int64
	ready   chan struct{}
}

func (c *counter) Reset(int64, []resource.Change) { close(c.ready) }
func (c *counter) Progress(rev int64)             { c.rev.Store(rev) }
func (c *counter) Apply(changes []resource.Change) {
	c.changes.Add(int64(len(changes)))
	c.rev.Store(changes[len(changes)-1].Revision)
}

// BenchmarkFeed writes and has a feed of one range, or of many, deliver. It
// keeps 16 writes under way.
func BenchmarkFeed(b *testing.B) {
	for _, ranges := range []int{0, 1, 16, 64} {
		b.Run(fmt.Sprintf("ranges=%d", ranges), func(b *testing.B) {
			c := newServer(b).client(b)
			store := c.Store(storetest.Namespaced())
			var paths []string
			for i := range max(ranges-1, 0) {
				paths = append(paths, fmt.Sprintf("a%d/", i))
			}
			sink := &counter{ready: make(chan struct{})}
			var feed resource.Feed
			if ranges > 0 {
				feed = c.Feed(append(slices.Clone(paths), "storetest.portico.dev/")...)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if feed != nil {
					_ = feed.Run(ctx, sink)
				}
			}()
			if feed != nil {
				<-sink.ready
			}
			objects := make(chan *resource.Object, b.N)
			for i := range b.N {
				objects <- benchObject(b, fmt.Sprint("x", i))
			}
			close(objects)
			b.ReportAllocs()
			b.ResetTimer()
			done := make(chan struct{})
			for range 16 {
				go func() {
					for o := range objects {
						if _, err := store.Create(b.Context(), o.Key(), o, 0); err != nil {
							b.Error(err)
						}
					}
					done <- struct{}{}
				}()
			}
			for range 16 {
				<-done
			}
			for feed != nil && sink.changes.Load() < int64(b.N) {
				time.Sleep(100 * time.Microsecond)
			}
			b.StopTimer()
			cancel()
			<-ended
		})
	}
}
