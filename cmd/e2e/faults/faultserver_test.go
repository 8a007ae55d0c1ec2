package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// A brokenServer takes the place of a node, at its address and with its certificate. It
// forwards the requests that it does not break to another node.
type brokenServer struct {
	*http.Server
	behind *node
	client *http.Client

	mu      sync.Mutex
	answers answering
	// swallowed are the writes that were read and not executed, as writeOf names them.
	swallowed []string
	asked     int
}

// answering responds to a request, or does not.
type answering func(s *brokenServer, w http.ResponseWriter, r *http.Request)

// startBroken kills the process of a node and starts a server in its place, which forwards every
// request at first.
func startBroken(t *testing.T, n, behind *node) *brokenServer {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(n.serving.CertFile, n.serving.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := &brokenServer{behind: behind, client: frontProxyClient(t, n), answers: answersRightly}
	n.kill(t)
	listener, err := net.Listen("tcp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = &http.Server{
		Handler: http.HandlerFunc(s.serve), ErrorLog: log.New(io.Discard, "", 0),
		// HTTP/1.1 only: a handler can hijack the connections.
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	go func() { _ = s.ServeTLS(listener, "", "") }() // until it is closed
	t.Cleanup(func() { s.Close() })
	return s
}

// frontProxyClient returns a client with the certificate of the front proxy.
func frontProxyClient(t *testing.T, n *node) *http.Client {
	t.Helper()
	files := n.cluster.files
	pair, err := tls.LoadX509KeyPair(files.FrontProxy.CertFile, files.FrontProxy.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(files.ServingCAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}
}

func (s *brokenServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if isRead(r) {
		s.asked++
	}
	answers := s.answers
	s.mu.Unlock()
	answers(s, w, r)
}

// set sets how the server responds, and resets the count.
func (s *brokenServer) set(answers answering) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers, s.asked = answers, 0
}

// count returns the number of reads since set.
func (s *brokenServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// isRead reports whether a request is a read of the load.
func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, faultPath)
}

// swallow reads a request and records a write. The gateway must not send it to another server,
// because it cannot know whether this one has executed it.
func (s *brokenServer) swallow(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, faultPath) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swallowed = append(s.swallowed, writeOf(r.Method, r.URL.Path, string(body)))
}

// pass forwards a request to the node behind.
func (s *brokenServer) pass(ctx context.Context, r *http.Request) (*http.Response, []byte, error) {
	req := r.Clone(ctx)
	req.RequestURI, req.URL.Scheme, req.URL.Host = "", "https", s.behind.address
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// relay writes a response of the node behind.
func relay(w http.ResponseWriter, resp *http.Response, body []byte) {
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body) // the gateway may have gone
}

// answersRightly forwards the request.
func answersRightly(s *brokenServer, w http.ResponseWriter, r *http.Request) {
	resp, body, err := s.pass(r.Context(), r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	relay(w, resp, body)
}

// answersSlowly forwards requests of the load after a pause, and health checks at once.
func answersSlowly(after time.Duration) answering {
	return func(s *brokenServer, w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, faultPath) {
			select {
			case <-time.After(after):
			case <-r.Context().Done():
				return
			}
		}
		answersRightly(s, w, r)
	}
}

// answers500 responds to health checks with 200.
func answers500(s *brokenServer, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		w.WriteHeader(http.StatusOK)
		return
	}
	s.swallow(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"broken","reason":"InternalError","code":500}`)
}

// answersGarbage writes bytes that are not HTTP.
func answersGarbage(s *brokenServer, w http.ResponseWriter, r *http.Request) {
	s.swallow(r)
	s.take(w, bytes.Repeat([]byte("\x00garbage\xff"), 20))
}

// closesMidResponse sends half of a response with the length of all of it.
func closesMidResponse(s *brokenServer, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		s.swallow(r)
		s.take(w, []byte("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{\"kind\":"))
		return
	}
	resp, body, err := s.pass(r.Context(), r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", resp.Status, resp.Header.Get("Content-Type"), max(len(body), 2))
	out.Write(body[:len(body)/2])
	s.take(w, out.Bytes())
}

// take writes bytes to the connection and closes it.
func (s *brokenServer) take(w http.ResponseWriter, data []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = conn.Write(data) // the gateway may have gone
	conn.Close()
}

// noneElsewhere checks that no write that this server has swallowed was sent to another one. The
// load sends each write once.
func (s *brokenServer) noneElsewhere(t *testing.T, load *faultLoad) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, write := range s.swallowed {
		if load.done(write) {
			t.Errorf("%s reached the broken server and another one", write)
		}
	}
	t.Logf("the broken server got %d reads and %d writes", s.asked, len(s.swallowed))
}
