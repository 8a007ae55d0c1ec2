package transport

import (
	"container/list"
	"context"
	"time"
)

// dialQueue is the requests that wait for a connection, first come, first served, and
// the dials in progress for them. Dials are shared: another starts while waiters
// outnumber dials, up to maxDials. Guarded by pool.mu.
type dialQueue struct {
	waiters list.List // of *waiter
	dialing int
	// progress is when a connection was last made or became idle.
	progress time.Time
}

// waiter is a request that waits for a connection.
type waiter struct {
	began   time.Time
	element *list.Element // nil: the wait has ended
	// ready is closed after the fields below have been set.
	ready  chan struct{}
	conn   *conn
	reused bool
	err    error
}

func (p *pool) enqueue() *waiter {
	w := &waiter{began: time.Now(), ready: make(chan struct{})}
	w.element = p.queue.waiters.PushBack(w)
	p.dialMore()
	return w
}

// deliver ends a wait with a connection or an error; p.mu is held.
func (p *pool) deliver(w *waiter, c *conn, reused bool, err error) {
	p.queue.waiters.Remove(w.element)
	w.element, w.conn, w.reused, w.err = nil, c, reused, err
	close(w.ready)
}

// wait waits until a connection is reserved for the request, a dial fails or ctx ends. A
// dial is in progress for as long as a request waits, and ends within the time to
// connect.
func (p *pool) wait(ctx context.Context, w *waiter) (c *conn, reused bool, err error) {
	select {
	case <-w.ready:
		return w.conn, w.reused, w.err
	case <-ctx.Done():
		return nil, false, p.abandon(w, context.Cause(ctx))
	}
}

// abandon ends the wait of a request that has ended.
func (p *pool) abandon(w *waiter, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.element != nil {
		p.queue.waiters.Remove(w.element)
		w.element = nil
	} else if w.conn != nil { // served at the same time
		w.conn.client.Release()
		w.conn.active--
		p.offer(w.conn, true)
	}
	return cause
}

// dialMore starts dials while waiters outnumber them, up to maxDials; p.mu is held.
func (p *pool) dialMore() {
	for p.queue.dialing < p.maxDials && p.queue.dialing < p.queue.waiters.Len() {
		p.queue.dialing++
		go p.dial()
	}
}

// dial makes a connection for the request that then waits first.
func (p *pool) dial() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), p.timeouts().Connect, errSlow)
	defer cancel()
	began := time.Now()
	c, err := p.connect(ctx)
	p.mu.Lock()
	p.queue.dialing--
	if err != nil {
		p.failWaiters(began, err)
	} else {
		p.queue.progress = time.Now()
		p.offer(c, false)
		if p.multiplexed && c.active == 0 && p.queue.waiters.Len() > 0 {
			p.failWaiters(time.Now(), errNoStreams) // the next connection would be the same
		}
	}
	p.dialMore()
	p.mu.Unlock()
}

// failWaiters fails the requests that have waited since before a dial that failed; over
// HTTP/2, which dials one connection at a time, all that wait. If a connection was made
// or became idle meanwhile, only the first fails. p.mu is held.
func (p *pool) failWaiters(began time.Time, err error) {
	progressed := p.queue.progress.After(began)
	for e := p.queue.waiters.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if !p.multiplexed && w.began.After(began) {
			break
		}
		p.deliver(w, nil, false, err)
		if progressed {
			break
		}
	}
}
