package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// gated is a listener whose connections are silent until their gate opens.
type gated struct {
	net.Listener
	opened atomic.Int64
	gate   func(n int64) <-chan struct{} // of the connection with a number, from 1
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

// newGated starts a TLS server behind a gate, and returns the Endpoint of it.
func newGated(t *testing.T, gate func(n int64) <-chan struct{}) (*gated, *counted) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	l := &gated{Listener: s.Listener, gate: gate}
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	return l, newCounted(t, "tcp", l.Addr().String(), trustOf(s))
}

func (c *counted) post(t *testing.T, protocol Protocol, body string) error {
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://example.com/", strings.NewReader(body))
	res, _, err := c.RoundTrip(req, protocol)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// A burst at a server that is slow to connect to makes no more connections at the same
// time than maxDials, and is answered by these.
func TestBurst(t *testing.T) {
	t.Parallel()
	const requests, dials = 300, 16
	for protocol, size := range map[Protocol]int{HTTP1: 128 << 10, Upgrade: 1} {
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		l, e := newGated(t, func(int64) <-chan struct{} { return gate })
		t.Cleanup(open) // before the server is closed
		e.http1(t).maxDials = dials
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				if err := e.post(t, protocol, strings.Repeat("x", size)); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "not all wait for connections that are being made", func() bool {
			waiting, dialing := e.waiting(t)
			return waiting == requests && dialing == dials && l.opened.Load() == dials
		})
		open()
		all.Wait()
		eventually(t, "some still wait", func() bool {
			waiting, dialing := e.waiting(t)
			return waiting == 0 && dialing == 0
		})
		if e.broken.Load() != 0 {
			t.Errorf("%d broke", e.broken.Load())
		}
	}
}

// A request that gets a connection which became idle does not wait for a dial.
func TestWaiterTakesIdleConnection(t *testing.T) {
	t.Parallel()
	hold, first := make(chan struct{}), make(chan struct{})
	close(first)
	l, e := newGated(t, func(n int64) <-chan struct{} {
		if n == 1 {
			return first
		}
		return hold
	})
	t.Cleanup(func() { close(hold) })
	body, w := io.Pipe()
	slow, done := make(chan error), make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://example.com/", body)
		res, _, err := e.RoundTrip(req, HTTP1)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
		}
		slow <- err
	}()
	eventually(t, "the first does not connect", func() bool { return l.opened.Load() == 1 })
	if _, err := io.WriteString(w, "x"); err != nil { // it has the connection
		t.Fatal(err)
	}
	go func() { done <- e.post(t, HTTP1, "x") }()
	eventually(t, "the second does not wait", func() bool { waiting, _ := e.waiting(t); return waiting == 1 && l.opened.Load() == 2 })
	w.Close()
	for _, c := range []chan error{slow, done} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
}

// failing returns a pool whose dials fail when hold is closed, and counts them.
func failing(hold chan struct{}, err error, dials *int, multiplexed bool) *pool {
	return &pool{
		multiplexed: multiplexed, maxDials: 1, broken: func() {}, timeouts: func() Timeouts { return Timeouts{Connect: time.Second} },
		connect: func(ctx context.Context) (*conn, error) {
			*dials++
			select {
			case <-hold:
				return nil, &ConnectError{err}
			case <-ctx.Done():
				return nil, &ConnectError{context.Cause(ctx)}
			}
		},
	}
}

// Requests that wait for a dial fail with it, together.
func TestWaitersShareAFailedDial(t *testing.T) {
	for _, multiplexed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			dials, hold := 0, make(chan struct{})
			p := failing(hold, io.ErrUnexpectedEOF, &dials, multiplexed)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					_, _, err := p.acquire(t.Context(), false)
					if !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, _, err := p.acquire(ctx, false); err != context.Canceled {
				t.Errorf("a request that ended: %v", err)
			}
			close(hold)
			all.Wait()
			if dials != 1 {
				t.Errorf("%d dials", dials)
			}
		})
	}
}

// A request waits for a server that accepts connections and is silent no longer than
// the time to connect, however many wait before it.
func TestWaitersOfSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		p := failing(nil, nil, &dials, false)
		began := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, _, err := p.acquire(t.Context(), false); !errors.Is(err, errSlow) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 1100*time.Millisecond || dials != 1 {
			t.Errorf("it took %v and %d dials", took, dials)
		}
	})
}

// Requests that wait for connections which are replaced meanwhile get a connection of
// those that replace them.
func TestWaitersOfRetiredPool(t *testing.T) {
	t.Parallel()
	gate, rest := make(chan struct{}), make(chan struct{})
	close(rest)
	_, e := newGated(t, func(n int64) <-chan struct{} {
		if n == 1 {
			return gate
		}
		return rest
	})
	t.Cleanup(func() { close(gate) }) // before the server is closed
	done := make(chan error)
	go func() { done <- e.post(t, HTTP1, "x") }()
	eventually(t, "it does not wait", func() bool { waiting, dialing := e.waiting(t); return waiting == 1 && dialing == 1 })
	e.Renew()
	if err := <-done; err != nil {
		t.Error(err)
	}
	e.Close()
	if err := e.post(t, HTTP1, "x"); err != nil {
		t.Errorf("after Close: %v", err)
	}
}
