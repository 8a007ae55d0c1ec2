package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// gated is a listener whose connections say nothing until they are let.
type gated struct {
	net.Listener
	opened atomic.Int64
	gate   func(n int64) <-chan struct{} // of the connection of this number, from 1
}

func (l *gated) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: conn, gate: l.gate(l.opened.Add(1))}, nil
}

type gatedConn struct {
	net.Conn
	gate <-chan struct{}
}

func (c *gatedConn) Read(p []byte) (int, error) {
	<-c.gate
	return c.Conn.Read(p)
}

// behindGate starts a TLS server all of whose connections pass a gate.
func behindGate(t *testing.T, gate func(n int64) <-chan struct{}) (*gated, Endpoint) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	l := &gated{Listener: s.Listener, gate: gate}
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	return l, At(l.Addr().String())[0]
}

// inLine is how many requests wait for a connection to the only endpoint.
func inLine(t *testing.T, u *Upstream) (waits, dialing int) {
	t.Helper()
	g, err := u.endpoints[0].ways.get()
	if err != nil {
		t.Fatal(err)
	}
	g.direct.mu.Lock()
	defer g.direct.mu.Unlock()
	return g.direct.line.waits.Len(), g.direct.line.dialing
}

// A burst at a server that is slow to connect to is carried by the connections
// that may be made at the same time: as soon as these are there, all is answered.
func TestBurst(t *testing.T) {
	const requests = 500
	first, rest := make(chan struct{}), make(chan struct{})
	var most atomic.Int64
	l, e := behindGate(t, func(n int64) <-chan struct{} {
		if n <= most.Load() {
			return first
		}
		return rest
	})
	u := over(t, turns(), e)
	g, err := u.endpoints[0].ways.get()
	if err != nil {
		t.Fatal(err)
	}
	g.direct.maxDials = min(g.direct.maxDials, 32) // far fewer than requests, however many processors
	most.Store(int64(g.direct.maxDials))
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if got := send(t, u, short, "POST", "x"); got.err != nil || got.code != http.StatusOK {
				t.Errorf("%d %v", got.code, got.err)
			}
		})
	}
	eventually(t, "not all wait for connections that are being made", func() bool {
		waits, _ := inLine(t, u)
		return waits == requests && l.opened.Load() >= most.Load()
	})
	if n := l.opened.Load(); n != most.Load() {
		t.Errorf("%d connections are being made, want %d", n, most.Load())
	}
	close(first)
	all.Wait()
	// Those that were begun for who waited still.
	if n := l.opened.Load(); n > 2*most.Load() {
		t.Errorf("%d connections for a burst, want no more than %d", n, 2*most.Load())
	}
	close(rest)
	eventually(t, "the others are not kept", func() bool {
		g.direct.mu.Lock()
		defer g.direct.mu.Unlock()
		return g.direct.line.dialing == 0 && int64(len(g.direct.idle)) == l.opened.Load()
	})
	if s := u.Status(); s.Endpoints[0].Errors != 0 {
		t.Errorf("%d errors", s.Endpoints[0].Errors)
	}
}

// So is one of large bodies, and of requests that leave HTTP: each of these needs a
// connection of its own, and none that are begun for who has one by then.
func TestBurstOfLargeBodies(t *testing.T) {
	const requests = 80
	for _, k := range []kind{short, upgrade} {
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		l, e := behindGate(t, func(int64) <-chan struct{} { return gate })
		t.Cleanup(open) // before the server is closed
		u := over(t, turns(), e)
		g, err := u.endpoints[0].ways.get()
		if err != nil {
			t.Fatal(err)
		}
		g.direct.maxDials = 16
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				if got := send(t, u, k, "POST", strings.Repeat("x", 2*directBodyTCP)); got.err != nil || got.code != http.StatusOK {
					t.Errorf("%d %v", got.code, got.err)
				}
			})
		}
		eventually(t, "not all wait for connections that are being made", func() bool {
			waits, dialing := inLine(t, u)
			return waits == requests && dialing == 16 && l.opened.Load() >= 16
		})
		time.Sleep(100 * time.Millisecond) // for those that do not wait
		if n := l.opened.Load(); n > 16 {
			t.Errorf("%d connections are being made, want 16", n)
		}
		open()
		all.Wait()
		if n := l.opened.Load(); k == upgrade && n < requests {
			t.Errorf("%d connections for %d that cannot share them", n, requests)
		}
		eventually(t, "some still wait", func() bool {
			waits, dialing := inLine(t, u)
			return waits == 0 && dialing == 0
		})
		if s := u.Status(); s.Endpoints[0].Errors != 0 {
			t.Errorf("%d errors", s.Endpoints[0].Errors)
		}
	}
}

// Who has got a connection that came free does not wait for another.
func TestLargeBodyTakesWhatComesFree(t *testing.T) {
	hold := make(chan struct{})
	answer := make(chan struct{})
	l, e := behindGate(t, func(n int64) <-chan struct{} {
		if n == 1 {
			return closedChan()
		}
		return hold
	})
	t.Cleanup(func() { close(hold) })
	u := over(t, turns(), e)
	first := make(chan result)
	large := strings.Repeat("x", 2*directBodyTCP)
	go func() { first <- slowly(t, u, large, answer) }()
	eventually(t, "the first does not connect", func() bool { return l.opened.Load() == 1 })
	second := make(chan result)
	late := make(chan struct{})
	go func() { second <- slowly(t, u, large, late) }()
	eventually(t, "the second does not wait", func() bool { waits, _ := inLine(t, u); return waits == 1 && l.opened.Load() == 2 })
	close(answer)
	if got := <-first; got.code != http.StatusOK {
		t.Errorf("%+v", got)
	}
	eventually(t, "it still waits", func() bool { waits, _ := inLine(t, u); return waits == 0 })
	close(late)
	if got := <-second; got.code != http.StatusOK {
		t.Errorf("%+v", got)
	}
}

func closedChan() chan struct{} { c := make(chan struct{}); close(c); return c }

// slowly sends a body whose last byte waits.
func slowly(t *testing.T, u *Upstream, body string, last <-chan struct{}) result {
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, body[1:])
		<-last
		_, _ = io.WriteString(w, body[:1])
		w.Close()
	}()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://example.com/", r)
	res, err := u.send(req, short)
	if err != nil {
		return result{err: err}
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return result{code: res.StatusCode, err: err}
}

// Requests to an endpoint that takes connections and says nothing go to another
// after the time to connect, each after its own, whatever their number.
func TestBurstAtHungEndpoint(t *testing.T) {
	never := make(chan struct{})
	_, hung := behindGate(t, func(int64) <-chan struct{} { return never })
	t.Cleanup(func() { close(never) }) // before the server is closed
	n := startNode(t, "tls", nil)
	p := turns()
	p.Connect, p.ConsecutiveLocalErrors, p.SlowStart = 2*time.Second, 0, 0
	u := over(t, p, n.endpoint())
	if got := send(t, u, short, "GET", ""); got.err != nil {
		t.Fatal(got.err)
	}
	u.SetEndpoints([]Endpoint{hung, n.endpoint()})
	g, err := u.endpoints[0].ways.get()
	if err != nil {
		t.Fatal(err)
	}
	g.direct.maxDials = 2
	// In turn, the dials for so many would take far longer than anybody waits here.
	const requests = 400
	ctx, cancel := context.WithTimeout(t.Context(), requests/2/2*p.Connect/2)
	defer cancel()
	var all sync.WaitGroup
	var moved atomic.Int64
	for range requests {
		all.Go(func() {
			tr := &Trace{}
			req, _ := http.NewRequestWithContext(WithTrace(ctx, tr), "GET", "https://example.com/", nil)
			res, err := u.send(req, short)
			if err != nil {
				t.Error(err, tr.Attempts())
				return
			}
			res.Body.Close()
			if _, n := tr.Last(); n > 1 {
				moved.Add(1)
			}
		})
	}
	all.Wait()
	if moved.Load() < requests/4 {
		t.Errorf("%d of %d requests went there first", moved.Load(), requests)
	}
}
