package transport

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxIdle is how many idle HTTP/1.1 connections a pool keeps.
const maxIdle = 256

// pool is the connections of one protocol to an endpoint that were made with the same
// credentials.
type pool struct {
	// connect dials one connection.
	connect  func(context.Context) (*conn, error)
	timeouts func() Timeouts
	// broken is called when a connection fails that no request reports. It does not
	// block.
	broken   func()
	maxDials int
	// multiplexed: connections carry several requests (HTTP/2).
	multiplexed bool

	mu sync.Mutex
	// conns are the connections that may take requests: over HTTP/1.1 the idle ones,
	// the last used last; over HTTP/2 all.
	conns   []*conn
	queue   dialQueue
	reaper  *time.Timer // closes idle HTTP/1.1 connections; nil while there are none
	retired bool        // another pool has replaced this one
}

// acquire returns a connection with one request reserved on it: exactly one RoundTrip
// or Release must follow. reused reports whether it has carried requests before. fresh
// prefers a new connection to an idle one. After errRetired the caller must ask the pool
// that has replaced this one.
func (p *pool) acquire(ctx context.Context, fresh bool) (c *conn, reused bool, err error) {
	p.mu.Lock()
	if p.retired {
		p.mu.Unlock()
		return nil, false, errRetired
	}
	if !fresh {
		if c := p.takeReady(); c != nil {
			p.mu.Unlock()
			return c, true, nil
		}
	}
	w := p.enqueue()
	p.mu.Unlock()
	return p.wait(ctx, w)
}

// takeReady reserves a request on a connection in conns; nil if none has room. Over
// HTTP/1.1 it is the one used last, over HTTP/2 the oldest. p.mu is held.
func (p *pool) takeReady() *conn {
	now := time.Now()
	if !p.multiplexed {
		for n := len(p.conns) - 1; n >= 0; n-- {
			c := p.conns[n]
			p.conns[n], p.conns = nil, p.conns[:n]
			if c.usable(now) && c.reserve() {
				return c
			}
			go c.Close()
		}
		return nil
	}
	kept := p.conns[:0]
	var found *conn
	for _, c := range p.conns {
		switch {
		case found == nil && c.usable(now) && c.reserve():
			found = c
		case found != nil, c.active > 0 && c.usable(now):
		default: // it has expired, or takes no more requests and has none
			c.retire()
			continue
		}
		kept = append(kept, c)
	}
	clear(p.conns[len(kept):])
	p.conns = kept
	return found
}

// offer gives a connection with room to waiters, and keeps it if it has room left;
// p.mu is held.
func (p *pool) offer(c *conn, reused bool) {
	for e := p.queue.waiters.Front(); e != nil && c.reserve(); e = p.queue.waiters.Front() {
		p.deliver(e.Value.(*waiter), c, reused, nil)
	}
	switch {
	case p.multiplexed && slices.Contains(p.conns, c):
	case p.retired, !p.multiplexed && c.active == 0 && len(p.conns) >= maxIdle:
		c.retire()
	case p.multiplexed:
		p.conns = append(p.conns, c)
	case c.active == 0:
		c.idleSince = time.Now()
		p.conns = append(p.conns, c)
		if p.reaper == nil {
			p.reaper = time.AfterFunc(p.timeouts().Idle, p.closeIdle)
		}
	}
}

// putIdle takes back an HTTP/1.1 connection after its answer has been read.
func (p *pool) putIdle(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.active = 0
	now := time.Now()
	p.queue.progress = now
	if !c.usable(now) {
		go c.Close()
		return
	}
	p.offer(c, true)
}

// release ends a request of an HTTP/2 connection.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.active--; c.active == 0 && c.retired {
		go c.Close()
	}
}

// closeIdle closes HTTP/1.1 connections that were idle for too long.
func (p *pool) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := p.timeouts().Idle
	p.closeConns(func(c *conn) bool { return time.Since(c.idleSince) >= limit })
	p.reaper = nil
	if len(p.conns) > 0 {
		p.reaper = time.AfterFunc(limit-time.Since(p.conns[0].idleSince), p.closeIdle)
	}
}

// closeIdleSince closes idle HTTP/1.1 connections that have carried nothing since a
// time.
func (p *pool) closeIdleSince(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeConns(func(c *conn) bool { return c.idleSince.Before(t) })
}

// closeConns closes the connections in conns for which which returns true; p.mu is held.
func (p *pool) closeConns(which func(*conn) bool) {
	kept := p.conns[:0]
	for _, c := range p.conns {
		if which(c) {
			c.retire()
		} else {
			kept = append(kept, c)
		}
	}
	clear(p.conns[len(kept):])
	p.conns = kept
}

// retire closes idle connections now and the others after their last request.
// Requests that wait get errRetired.
func (p *pool) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	for e := p.queue.waiters.Front(); e != nil; e = p.queue.waiters.Front() {
		p.deliver(e.Value.(*waiter), nil, false, errRetired)
	}
	p.closeConns(func(*conn) bool { return true })
}

// newTransport returns the net/http transport that makes a pool's ClientConns of
// connections that are in the context of NewClientConn.
func newTransport(idle time.Duration, protocols *http.Protocols) *http.Transport {
	return &http.Transport{
		Protocols: protocols, DialContext: connFromContext, IdleConnTimeout: idle, ExpectContinueTimeout: expectTimeout,
		// The client's Accept-Encoding is forwarded, and bodies are not decompressed.
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: StreamBuffer, MaxReadFrameSize: frameSize,
		},
	}
}
