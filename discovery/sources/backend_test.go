package sources

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
	"portico/resource"
)

// backend is a server with the discovery and the stream that a test sets.
type backend struct {
	*httptest.Server
	current discovery.Current
	// transport is its own, because httptest closes connections of the default one.
	transport *http.Transport
	closed    atomic.Bool

	mu       sync.Mutex
	override map[string]http.HandlerFunc // by path
	legacy   bool                        // it has no aggregated form and no ETags
	asked    []string                    // "path status"
}

func newBackend(t *testing.T, gvs ...discovery.GroupVersion) *backend {
	t.Helper()
	b := &backend{override: map[string]http.HandlerFunc{}}
	b.serves(t, gvs...)
	b.Server = httptest.NewServer(b)
	b.transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if b.closed.Load() { // another test may have its port
			return nil, syscall.ECONNREFUSED
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(b.Close)
	return b
}

// Close stops the server.
func (b *backend) Close() {
	b.closed.Store(true)
	b.transport.CloseIdleConnections()
	b.Server.Close()
}

// serves sets the group/versions of the server.
func (b *backend) serves(t *testing.T, gvs ...discovery.GroupVersion) {
	t.Helper()
	s, err := discovery.BuildAfter(b.current.Load(), gvs, "backend:443")
	if err != nil {
		t.Fatal(err)
	}
	b.current.Store(s)
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	h, legacy := b.override[r.URL.Path], b.legacy
	b.mu.Unlock()
	if h == nil {
		h = discovery.NewHandler(&b.current).ServeHTTP
	}
	if legacy {
		r.Header.Set("Accept", acceptLegacy)
		r.Header.Del("If-None-Match")
	}
	h(&recorder{w, b, r.URL.Path, false}, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
}

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	b     *backend
	path  string
	wrote bool
}

func (r *recorder) WriteHeader(code int) {
	r.wrote = true
	r.b.mu.Lock()
	r.b.asked = append(r.b.asked, fmt.Sprintf("%s %d", r.path, code))
	if r.b.legacy {
		r.Header().Del("ETag")
	}
	r.b.mu.Unlock()
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(p []byte) (int, error) {
	if !r.wrote {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(p)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// handle sets the handler of a path.
func (b *backend) handle(path string, h http.HandlerFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.override[path] = h
}

// answer sets the answer at a path.
func (b *backend) answer(path string, code int, contentType, body string) {
	b.handle(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	})
}

// answerTagged sets the answer at a path, with an ETag unless that is "".
func (b *backend) answerTagged(path, etag, body string) {
	b.handle(path, func(w http.ResponseWriter, r *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
			if r.Header.Get("If-None-Match") == etag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		fmt.Fprint(w, body)
	})
}

// heal removes all answers that were set.
func (b *backend) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.override)
}

// requests returns the requests since the last call.
func (b *backend) requests() (asked string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, b.asked = strings.Join(b.asked, ", "), nil
	return asked
}

func (b *backend) source(only ...schema.GroupVersion) *Source { return NewSource(b.config(only...)) }

func (b *backend) config(only ...schema.GroupVersion) Config {
	return Config{
		Name: "test", BaseURL: b.URL, Transport: b.transport, GroupVersions: only,
		Identify: func(h http.Header) { h.Set("X-Remote-User", "system:kube-aggregator") },
	}
}
