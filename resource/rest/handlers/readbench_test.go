package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
	"portico/resource/watchcache"
)

// custom is a codec without Go types: lists keep apiVersion and kind, as those of custom
// resources.
type custom struct{ rest.Codec }

func (custom) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

// cached returns an API over a watch cache with n objects of about size bytes,
// stored as JSON (kind Secret, instead of a custom resource).
func cached(tb testing.TB, n, size int) http.Handler {
	tb.Helper()
	kind := resttest.Secrets()
	kind.Codec = custom{kind.Codec}
	storage := memstore.New()
	beneath := storage.Store(&kind.Info)
	for i := range n {
		obj := resttest.Secret(fmt.Sprintf("s-%06d", i))
		obj.StringData = map[string]string{"text": strings.Repeat("0123456789", max(size-220, 0)/10)}
		o, err := kind.Codec.EncodeStored(obj)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := beneath.Create(tb.Context(), o.Key(), o, 0); err != nil {
			tb.Fatal(err)
		}
	}
	cache := watchcache.New(watchcache.Config{Feed: storage.Feed(), Store: storage.Store, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = cache.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	if err := cache.WaitReady(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	api := New(Config{Resources: []*rest.Resource{{Kind: kind, Store: cache.Store(&kind.Info)}}})
	return asUser(api, &resource.User{Name: "alice"})
}

// discard is a ResponseWriter that counts bytes and writes.
type discard struct {
	header       http.Header
	code         int
	bytes, calls int64
}

func (d *discard) Header() http.Header  { return d.header }
func (d *discard) WriteHeader(code int) { d.code = code }
func (d *discard) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	d.calls++
	return len(p), nil
}

// reset prepares a discard for another response.
func (d *discard) reset() { clear(d.header); *d = discard{header: d.header} }

// BenchmarkList is LIST of 5,000 objects of 3.5 KB through the handler alone.
func BenchmarkList(b *testing.B) {
	h := cached(b, 5000, 3500)
	r, w := httptest.NewRequest("GET", "/api/v1/secrets", nil), &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		w.reset()
		h.ServeHTTP(w, r)
	}
	b.SetBytes(w.bytes)
}

// BenchmarkGet is one object of 3.5 KB, through the handler alone.
func BenchmarkGet(b *testing.B) {
	h := cached(b, 5000, 3500)
	for _, query := range []string{"", "?resourceVersion=0"} {
		b.Run("query "+query, func(b *testing.B) {
			r, w := httptest.NewRequest("GET", inDefault+"secrets/s-002500"+query, nil), &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				w.reset()
				h.ServeHTTP(w, r)
			}
			if w.code != http.StatusOK || w.bytes < 3000 {
				b.Fatalf("code %d, %d bytes", w.code, w.bytes)
			}
		})
	}
}
