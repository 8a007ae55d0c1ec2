package handlers

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/watchcache"
)

// custom is a codec of objects that keep apiVersion and kind in lists, as those
// of custom resources do.
type custom struct{ rest.Codec }

func (custom) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

// cached is an API over a watch cache that holds n objects of about size bytes,
// stored as JSON (kind Secret, which stands for a custom resource).
func cached(tb testing.TB, n, size int) http.Handler {
	tb.Helper()
	kind := secrets()
	kind.Codec = custom{kind.Codec}
	storage := memstore.New()
	beneath := storage.Store(&kind.Info)
	for i := range n {
		obj := secret(fmt.Sprintf("s-%06d", i))
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "alice"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	})
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

// reset lets a discard take another response.
func (d *discard) reset() { clear(d.header); *d = discard{header: d.header} }

const benchList = "/api/v1/secrets"

// BenchmarkList is LIST of 5,000 objects of 3.5 KB: the handler alone, and over
// the two ways that it is reached by, beside a server that writes ready bytes.
func BenchmarkList(b *testing.B) {
	h := cached(b, 5000, 3500)
	b.Run("handler", func(b *testing.B) {
		r, w := httptest.NewRequest("GET", benchList, nil), &discard{header: http.Header{}}
		b.ReportAllocs()
		for b.Loop() {
			w.reset()
			h.ServeHTTP(w, r)
		}
		b.SetBytes(w.bytes)
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", benchList, nil))
	ready := w.Body.Bytes()
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.Header().Set("Content-Length", strconv.Itoa(len(ready)))
		_, _ = w.Write(ready)
	})
	for _, s := range []struct {
		name    string
		handler http.Handler
	}{{"list", h}, {"bare", bare}} {
		b.Run("h2 TLS/"+s.name, func(b *testing.B) { benchServe(b, overTLS(b, s.handler)) })
		b.Run("socket h1/"+s.name, func(b *testing.B) { benchServe(b, overSocket(b, s.handler, false)) })
		b.Run("socket h2c/"+s.name, func(b *testing.B) { benchServe(b, overSocket(b, s.handler, true)) })
	}
}

// benchServe reads lists, two at a time.
func benchServe(b *testing.B, client *http.Client) {
	b.SetParallelism(1)
	b.ReportAllocs()
	var size int64
	before := cpuTime()
	defer func() { b.ReportMetric((cpuTime()-before).Seconds()*1000/float64(b.N), "cpu-ms/op") }()
	b.RunParallel(func(pb *testing.PB) {
		buf := make([]byte, 256<<10)
		for pb.Next() {
			resp, err := client.Get("https://portico" + benchList)
			if err != nil {
				b.Error(err)
				return
			}
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buf)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				b.Errorf("%s after %d bytes: %v", resp.Status, n, err)
				return
			}
			size = n
		}
	})
	b.SetBytes(size)
}

// cpuTime is what this process has used so far: on a machine that is shared
// with others it says more than the clock.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail for oneself
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// overTLS serves HTTP/2 on loopback, with the windows of a large reader.
func overTLS(b *testing.B, h http.Handler) *http.Client {
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	transport := &http.Transport{
		DisableCompression: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// overSocket serves on a unix socket, as backends do for the gateway.
func overSocket(b *testing.B, h http.Handler, h2 bool) *http.Client {
	path := filepath.Join(b.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	server := &http.Server{Handler: h, Protocols: protocols}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	transport := &http.Transport{
		DisableCompression: true, Protocols: protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: plainHTTP{transport}}
}

// plainHTTP sends requests without TLS, whatever their URL says.
type plainHTTP struct{ next http.RoundTripper }

func (p plainHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme = "http"
	return p.next.RoundTrip(r)
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
