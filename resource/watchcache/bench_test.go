package watchcache_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"portico/resource"
	"portico/resource/watchcache"
)

// benchmarked is a running cache with n objects.
func benchmarked(b *testing.B, n int) (*fakeFeed, resource.Store) {
	feed := newFakeFeed()
	c := watchcache.New(watchcache.Config{
		Feed: feed, Logger: slog.New(slog.DiscardHandler),
		Store: func(info *resource.Info) resource.Store { return &noStore{info: info} },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	var objects []*resource.Object
	for i := range n {
		objects = append(objects, thing(fmt.Sprintf("x%06d", i), int64(i+1)))
	}
	feed.reset(int64(n+1), objects...)
	return feed, c.Store(things)
}

// A latest read costs what Feed.Current costs and this.
func BenchmarkGet(b *testing.B) {
	_, s := benchmarked(b, 10000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Get(b.Context(), resource.Key{Namespace: "a", Name: "x005000"}, resource.At{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkListPage(b *testing.B) {
	for _, n := range []int{1000, 100000} {
		b.Run(fmt.Sprintf("500 of %d", n), func(b *testing.B) {
			_, s := benchmarked(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.List(b.Context(), resource.ListOptions{Limit: 500}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// One change with many watchers of other objects, and of everything.
func BenchmarkChange(b *testing.B) {
	for _, tt := range []struct {
		name  string
		watch func(i int) resource.WatchOptions
		seen  bool
	}{
		{"10000 watch other names", func(i int) resource.WatchOptions {
			return resource.WatchOptions{Namespace: "a", Selector: byName(fmt.Sprintf("x%06d", i))}
		}, false},
		{"1000 watch everything", func(int) resource.WatchOptions { return resource.WatchOptions{} }, true},
	} {
		b.Run(tt.name, func(b *testing.B) {
			n := 10000
			if tt.seen {
				n = 1000
			}
			feed, s := benchmarked(b, 10000)
			var seen, watching sync.WaitGroup
			for i := range n {
				w, err := s.Watch(b.Context(), tt.watch(i))
				if err != nil {
					b.Fatal(err)
				}
				watching.Go(func() {
					for {
						events, err := w.Next(context.Background())
						if err != nil {
							return
						}
						for range events {
							seen.Done()
						}
					}
				})
				b.Cleanup(watching.Wait)
				b.Cleanup(w.Close)
			}
			rev := int64(20000)
			for b.Loop() {
				if tt.seen {
					seen.Add(n)
				}
				rev++
				feed.put(thing("y", rev))
				seen.Wait()
			}
			if tt.seen {
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
			}
		})
	}
}
