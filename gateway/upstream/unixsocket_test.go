package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/resource"
	"portico/resource/fairshare"
)

// socketServer serves on a unix socket, with HTTP/2 if http2 is set, and counts
// connections.
func socketServer(t *testing.T, http2 bool, serve http.HandlerFunc) (Endpoint, *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(serve)
	server.Listener.Close()
	server.Listener = l
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(http2)
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1000}
	connections := new(atomic.Int32)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return Endpoint{URL: "unix://" + l.Addr().String(), Network: "unix", Address: l.Addr().String(), Weight: 1}, connections
}

// stream begins an answer and keeps it open.
func stream(w http.ResponseWriter, r *http.Request) {
	if r.Method == "PRI" { // net/http leaves it to the handler
		http.Error(w, "what is that", http.StatusBadRequest)
		return
	}
	if n := r.Header.Get("X-Fill"); n != "" {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	}
	fmt.Fprintln(w, r.Proto)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func socketUpstream(t *testing.T, e Endpoint) *Upstream {
	t.Helper()
	u := over(t, turns(), e)
	u.SetTrust(Trust{Plain: true, PriorKnowledge: true})
	return u
}

// watchOver begins a watch and returns its answer and the first line of it.
func watchOver(t *testing.T, u *Upstream, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://server/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(header) > 0 {
		req.Header.Set(header[0], header[1])
	}
	res, err := u.Long().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if len(header) > 0 {
		return res, ""
	}
	line := make([]byte, len("HTTP/2.0\n"))
	if _, err := io.ReadFull(res.Body, line); err != nil {
		t.Fatal(err)
	}
	return res, strings.TrimSpace(string(line))
}

// Long-running requests to a socket share connections where the server speaks HTTP/2,
// and one that is not read holds up no other.
func TestWatchesOnSocketShareConnections(t *testing.T) {
	t.Parallel()
	e, connections := socketServer(t, true, stream)
	u := socketUpstream(t, e)
	for range 100 {
		watchOver(t, u, "X-Fill", "1") // of which nothing is read
	}
	done := make(chan string)
	go func() {
		_, proto := watchOver(t, u)
		done <- proto
	}()
	select {
	case proto := <-done:
		if proto != "HTTP/2.0" {
			t.Errorf("the watch goes by %s", proto)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("watches that are not read hold up another")
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A server on a socket without HTTP/2 is tried once, and gets HTTP/1.1, also if it
// closes the connection instead of an answer.
func TestSocketServerWithoutHTTP2(t *testing.T) {
	t.Parallel()
	e, connections := socketServer(t, false, stream)
	u := socketUpstream(t, e)
	for range 3 {
		if _, proto := watchOver(t, u); proto != "HTTP/1.1" {
			t.Errorf("the watch goes by %s", proto)
		}
	}
	if n := connections.Load(); n > 4 {
		t.Errorf("%d connections for 3 watches", n)
	}

	hangUp, _ := socketServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PRI" {
			panic(http.ErrAbortHandler)
		}
		stream(w, r)
	})
	if _, proto := watchOver(t, socketUpstream(t, hangUp)); proto != "HTTP/1.1" {
		t.Errorf("the watch goes by %s", proto)
	}
}

// Connections that carry one long-running request each are limited, shared ones are
// not, and the end of a request releases its slot.
func TestLimitOfLastingConnections(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		e, _ := socketServer(t, http2, stream)
		u := socketUpstream(t, e)
		u.lasting = fairshare.New(4, 0)
		act := &resource.Action{Verb: "watch", IsResource: true, Resource: "things", User: &resource.User{Name: "jane"}}
		watch := func() (*http.Response, error) {
			req, _ := http.NewRequestWithContext(resource.WithAction(t.Context(), act), "GET", "http://server/", nil)
			return u.Long().RoundTrip(req)
		}
		first, err := watch() // by which it is known what the server speaks
		if err != nil {
			t.Fatal(err)
		}
		open := []*http.Response{first}
		var overload *OverloadError
		for range 10 {
			res, err := watch()
			if err != nil && !errors.As(err, &overload) {
				t.Fatal(err)
			}
			if err != nil {
				break
			}
			open = append(open, res)
		}
		if want := map[bool]int{false: 4, true: 11}[http2]; len(open) != want {
			t.Errorf("%d watches, want %d (HTTP/2: %v)", len(open), want, http2)
		}
		for _, res := range open {
			res.Body.Close()
		}
		if n := u.lasting.InUse(); n != 0 {
			t.Errorf("%d slots were not released", n)
		}
	}
}
