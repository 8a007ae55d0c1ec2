package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portico/internal/testing/await"
)

// newGated starts a TLS server that holds some connections, by their number from 1, in the
// handshake until open is called or the test ends, and returns an Endpoint of it and the
// number of connections.
func newGated(t *testing.T, holds func(n int32) bool) (e *counted, opened *atomic.Int32, open func()) {
	t.Helper()
	gate, opened := make(chan struct{}), new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if holds(opened.Add(1)) {
			<-gate
		}
		return nil, nil
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open) // before the server is closed
	return newCounted(t, "tcp", s.Listener.Addr().String(), trustOf(s)), opened, open
}

func (c *counted) post(t *testing.T, protocol Protocol, body io.Reader) error {
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://example.com/", body)
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
		e, opened, open := newGated(t, func(int32) bool { return true })
		e.http1(t).maxDials = dials
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				if err := e.post(t, protocol, strings.NewReader(strings.Repeat("x", size))); err != nil {
					t.Error(err)
				}
			})
		}
		await.Until(t, "not all wait for connections that are being made", func() bool {
			waiting, dialing := e.waiting(t)
			return waiting == requests && dialing == dials && opened.Load() == dials
		})
		open()
		all.Wait()
		await.Until(t, "some still wait", func() bool {
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
	e, opened, _ := newGated(t, func(n int32) bool { return n > 1 })
	body, w := io.Pipe()
	done := make(chan error, 2)
	go func() { done <- e.post(t, HTTP1, body) }()
	if _, err := io.WriteString(w, "x"); err != nil { // it has the connection
		t.Fatal(err)
	}
	go func() { done <- e.post(t, HTTP1, strings.NewReader("x")) }()
	await.Until(t, "the second does not wait", func() bool { waiting, _ := e.waiting(t); return waiting == 1 && opened.Load() == 2 })
	w.Close()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Requests that wait for a dial fail with it, together: when it fails, or after the time
// to connect if the server is silent. One that has ended does not wait.
func TestWaitersShareAFailedDial(t *testing.T) {
	t.Parallel()
	for _, multiplexed := range []bool{true, false} {
		for _, silent := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				dials, hold, want := 0, make(chan struct{}), errSlow
				p := &pool{
					multiplexed: multiplexed, maxDials: 1, timeouts: func() Timeouts { return Timeouts{Connect: time.Second} },
					connect: func(ctx context.Context) (*conn, error) {
						dials++
						select {
						case <-hold:
							return nil, &ConnectError{io.ErrUnexpectedEOF}
						case <-ctx.Done():
							return nil, &ConnectError{context.Cause(ctx)}
						}
					},
				}
				began := time.Now()
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						if _, _, err := p.acquire(t.Context(), false); !errors.Is(err, want) {
							t.Errorf("got %v, want %v", err, want)
						}
					})
				}
				synctest.Wait()
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				if _, _, err := p.acquire(ended, false); err != context.Canceled {
					t.Errorf("a request that ended: got %v, want context.Canceled", err)
				}
				if !silent {
					want = io.ErrUnexpectedEOF
					close(hold)
				}
				all.Wait()
				if took := time.Since(began); took > time.Second || dials != 1 {
					t.Errorf("got %d dials in %v, want 1 in at most 1s", dials, took)
				}
			})
		}
	}
}

// Requests that wait for connections which are replaced meanwhile get a connection of
// those that replace them.
func TestWaitersOfRetiredPool(t *testing.T) {
	t.Parallel()
	e, opened, _ := newGated(t, func(n int32) bool { return n == 1 })
	done := make(chan error)
	go func() { done <- e.post(t, HTTP1, strings.NewReader("x")) }()
	await.Until(t, "it does not wait", func() bool {
		waiting, dialing := e.waiting(t)
		return waiting == 1 && dialing == 1 && opened.Load() == 1
	})
	e.Renew()
	if err := <-done; err != nil {
		t.Error(err)
	}
	e.Renew()
	if err := e.post(t, HTTP1, strings.NewReader("x")); err != nil {
		t.Errorf("the next one: %v", err)
	}
}
