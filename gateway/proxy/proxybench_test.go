package proxy

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"portico/apiservice"
	"portico/resource"
	"portico/resource/serve"
	"portico/resource/serve/filter"
)

// benchObject is the size of the answer, in bytes.
const benchObject = 3500

// benchChain puts the filters of a server before a handler.
func benchChain(b *testing.B, h http.HandlerFunc) http.Handler {
	s, err := filter.New(filter.Config{Handler: h, Authenticator: benchAccount{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkProxy measures a short request in the filters and the proxy, without
// connections, beside a bare reverse proxy.
func BenchmarkProxy(b *testing.B) {
	answer := bytes.Repeat([]byte("x"), benchObject)
	server := readyServer{answer}
	base := server.Base()
	up := &Upstream{}
	up.short, up.long, up.upgrade = NewMaker(slog.New(slog.DiscardHandler)).build(server)
	rt := &Route{Name: "v1.", Upstream: up, Condition: apiservice.Passed()}
	for name, handler := range map[string]http.Handler{
		"bare": &httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) { pr.SetURL(base) }, Transport: server},
		"gateway": benchChain(b, serve.NewRouter(serve.Routes{Resources: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(&Proxy{}).Send(w, r, rt)
		})}).ServeHTTP),
	} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background()) // as a server's are
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithCancel(ctx)
				r := (&http.Request{
					Method: "GET", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "gateway", RemoteAddr: "127.0.0.1:1234", Body: http.NoBody,
					URL:        &url.URL{Path: "/api/v1/namespaces/default/configmaps/a"},
					RequestURI: "/api/v1/namespaces/default/configmaps/a",
					Header: http.Header{
						"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"bench"}, "Authorization": {"Bearer x"},
					},
				}).WithContext(ctx)
				w := &readyWriter{header: make(http.Header)}
				handler.ServeHTTP(w, r)
				cancel()
				if w.code != 200 || w.bytes != len(answer) {
					b.Fatal(w.code, w.bytes)
				}
			}
		})
	}
}

// readyServer answers at once.
type readyServer struct{ answer []byte }

func (readyServer) Base() *url.URL               { return &url.URL{Scheme: "https", Host: "example.com"} }
func (s readyServer) Short() http.RoundTripper   { return s }
func (s readyServer) Long() http.RoundTripper    { return s }
func (s readyServer) Upgrade() http.RoundTripper { return s }

func (s readyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(s.answer)),
		Header: http.Header{"Content-Type": {"application/json"}, "Content-Length": {"3500"}, "Date": {"Sat, 21 Nov 2026 11:00:00 GMT"}},
		Body:   io.NopCloser(bytes.NewReader(s.answer)),
	}, nil
}

// readyWriter is a response whose bytes are counted.
type readyWriter struct {
	header      http.Header
	code, bytes int
}

func (w *readyWriter) Header() http.Header         { return w.header }
func (w *readyWriter) Write(b []byte) (int, error) { w.bytes += len(b); return len(b), nil }
func (w *readyWriter) WriteHeader(code int)        { w.code = code }
func (w *readyWriter) FlushError() error           { return nil }

// benchAccount is a user of the form that service account tokens have.
type benchAccount struct{}

var account = &resource.User{
	Name: "system:serviceaccount:default:bench", UID: "59a7c3d5-8d8b-4f0e-a0ee-2a2f8d6a1b00",
	Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
	Extra:  map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=59a7c3d5-8d8b-4f0e-a0ee-2a2f8d6a1b00"}},
}

func (benchAccount) Authenticate(*http.Request) (*resource.User, bool, error) {
	return account, true, nil
}
