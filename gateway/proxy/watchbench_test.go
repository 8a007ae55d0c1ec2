package proxy

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/authn"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/serve/filter"
	"portico/resource/watchcache"
)

const (
	benchWatchers = 300
	benchObject   = 3500 // bytes, about
	benchStart    = 1000000
	benchWatch    = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=1000000"
)

// BenchmarkWatch is what deliveries to 300 watchers cost beside the yardstick:
// a bare server that writes ready frames, behind a bare reverse proxy in the
// chain, with the same clients on the same processors. The window is how many
// events may be under way at a time. Where others use the processors too, the
// processor time of a delivery, clients included, says more than their number.
func BenchmarkWatch(b *testing.B) {
	for _, where := range []string{"alone", "chain over TLS", "chain over a socket"} {
		for window, name := range map[int64]string{1: "one at a time", 32: "32 at a time"} {
			for _, bare := range []bool{true, false} {
				b.Run(where+"/"+name+"/"+map[bool]string{true: "bare", false: "portico"}[bare], func(b *testing.B) {
					var events emitter
					handler := events.bare(b)
					if !bare {
						handler = events.api(b)
					}
					switch where {
					case "chain over TLS":
						handler = benchFront(b, bare, benchTLS(b, handler))
					case "chain over a socket":
						handler = benchFront(b, bare, benchSocket(b, handler))
					}
					server := benchTLS(b, handler)
					events.deliver(b, server.Client(), server.URL, window)
				})
			}
		}
	}
}

// benchTLS serves over HTTP/2.
func benchTLS(b *testing.B, h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1000}
	server.StartTLS()
	b.Cleanup(server.Close)
	return server
}

// benchSocket serves plainly on a unix socket.
func benchSocket(b *testing.B, h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	listener, err := net.Listen("unix", filepath.Join(b.TempDir(), "s.sock"))
	if err != nil {
		b.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	b.Cleanup(server.Close)
	return server
}

// benchFront is the way through a gateway, or through a bare proxy.
func benchFront(b *testing.B, bare bool, server *httptest.Server) http.Handler {
	address := server.Listener.Addr()
	how, base := upstream.Trust{Plain: true}, &url.URL{Scheme: "http", Host: "example.com"}
	if address.Network() == "tcp" {
		pool := x509.NewCertPool()
		pool.AddCert(server.Certificate())
		how, base = upstream.Trust{Roots: fixed(pool), ServerName: "example.com"}, &url.URL{Scheme: "https", Host: "example.com"}
	}
	up := NewUpstream(upstream.Config{
		Base: base, Endpoints: []upstream.Endpoint{{URL: "bench", Network: address.Network(), Address: address.String(), Weight: 1}},
		Trust: how, Policy: upstream.NewPolicy(&backend.Spec{}),
	}, NewMaker(slog.New(slog.DiscardHandler)))
	b.Cleanup(up.Close)
	if bare {
		return &httputil.ReverseProxy{
			Rewrite:   func(pr *httputil.ProxyRequest) { pr.SetURL(base) },
			Transport: up.Long(), FlushInterval: -1,
		}
	}
	rt := &Route{Name: "v1.", Upstream: up, Condition: apiservice.Passed()}
	return benchChain(b, func(w http.ResponseWriter, r *http.Request) { (&Proxy{}).Send(w, r, rt) })
}

// benchChain puts the filters of a server before a handler.
func benchChain(b *testing.B, h http.HandlerFunc) http.Handler {
	return benchChainAs(b, benchUser{}, h)
}

func benchChainAs(b *testing.B, who authn.Authenticator, h http.HandlerFunc) http.Handler {
	s, err := filter.New(filter.Config{
		Handler:       h,
		Authenticator: who, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

type benchUser struct{}

func (benchUser) Authenticate(*http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: "jane", Groups: []string{"dev"}}, true, nil
}

var _ authn.Authenticator = benchUser{}

// emitter is where the events of a benchmark come from: a resource.Feed.
type emitter struct {
	emit  func(rev int64)
	frame int64 // its size in bytes
	sink  chan resource.FeedSink

	read, target atomic.Int64 // bytes
	reached      chan struct{}
}

// bare makes a handler that writes ready frames.
func (e *emitter) bare(*testing.B) http.Handler {
	var mu sync.Mutex
	var streams []chan []byte
	frame := []byte(`{"type":"MODIFIED","object":` + strings.Repeat("x", benchObject) + "}\n")
	e.frame = int64(len(frame))
	e.emit = func(int64) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range streams {
			s <- frame
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		frames := make(chan []byte, 64)
		mu.Lock()
		streams = append(streams, frames)
		mu.Unlock()
		control := http.NewResponseController(w)
		w.Header().Set("Content-Type", "application/json")
		_ = control.Flush()
		for {
			select {
			case frame := <-frames:
				if _, err := w.Write(frame); err != nil {
					return
				}
				_ = control.Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
}

// api makes the handler of a server that keeps one kind, in a watch cache.
func (e *emitter) api(b *testing.B) http.Handler {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	kind := &rest.Kind{
		Info:  resource.Info{Versions: []string{"v1"}, Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
		Codec: rest.TypedJSON(scheme, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
	}
	o, err := kind.Codec.EncodeStored(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"},
		Data:       map[string]string{"k": strings.Repeat("x", benchObject)},
	})
	if err != nil {
		b.Fatal(err)
	}
	o = o.WithRevision(benchStart)
	path := kind.ObjectPath(o.Key())
	e.frame = int64(len(o.Data) + len(`{"type":"MODIFIED","object":}`+"\n"))

	e.sink = make(chan resource.FeedSink)
	cache := watchcache.New(watchcache.Config{Feed: e, Store: func(*resource.Info) resource.Store { return nil }})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = cache.Run(ctx) })
	b.Cleanup(func() { cancel(); running.Wait() })
	sink := <-e.sink
	sink.Reset(benchStart, []resource.Change{{Path: path, Object: o, Revision: benchStart}})
	e.emit = func(rev int64) {
		sink.Apply([]resource.Change{{Path: path, Object: o.WithRevision(rev), Revision: rev}})
	}
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{{Kind: kind, Store: cache.Store(&kind.Info)}}})
	return benchChain(b, api.ServeHTTP)
}

func (e *emitter) Run(ctx context.Context, sink resource.FeedSink) error {
	e.sink <- sink
	<-ctx.Done()
	return ctx.Err()
}

func (e *emitter) Current(context.Context) (int64, error) { return benchStart, nil }
func (e *emitter) RequestProgress(context.Context) error  { return nil }

// deliver sends one event for each round of the benchmark.
func (e *emitter) deliver(b *testing.B, client *http.Client, base string, window int64) {
	client.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"h2"}
	client.Transport.(*http.Transport).DisableCompression = true
	e.reached = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	b.Cleanup(func() { cancel(); reading.Wait() })
	for range benchWatchers {
		r, err := http.NewRequestWithContext(ctx, "GET", base+benchWatch, nil)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
			b.Fatal(resp.Status, resp.Proto)
		}
		reading.Go(func() { e.readAll(resp.Body) })
	}
	sent, before := int64(0), processorTime(b)
	for b.Loop() {
		sent++
		e.emit(benchStart + sent)
		e.wait((sent - window + 1) * e.frame * benchWatchers)
	}
	e.wait(sent * e.frame * benchWatchers)
	n := float64(sent) * benchWatchers
	b.ReportMetric(n/b.Elapsed().Seconds(), "deliveries/s")
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/1000/n, "cpu-µs/delivery")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readAll counts what one client reads.
func (e *emitter) readAll(body io.ReadCloser) {
	defer body.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if err != nil {
			return
		}
		sum, target := e.read.Add(int64(n)), e.target.Load()
		if sum >= target && sum-int64(n) < target {
			select {
			case e.reached <- struct{}{}:
			default:
			}
		}
	}
}

// wait until all clients together have read that many bytes.
func (e *emitter) wait(target int64) {
	e.target.Store(target)
	for e.read.Load() < target {
		<-e.reached
	}
}
