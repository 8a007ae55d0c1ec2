package serve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// leaving is a request that asks to leave HTTP (a WebSocket, SPDY), whatever it
// is for: servers behind the gateway have connect subresources of their own, and
// REST servers have any path. Until its connection is taken over it is like any
// other: it has a deadline and a place in flight, and shutdown waits for it. From
// then on it is long-running. Only the request's goroutine uses it.
//
// One that is long-running by its Action always was that.
type leaving struct {
	ctx context.Context // as whose end shutdown ends the request

	// Of one that is not long-running yet:
	life *life
	end  context.CancelCauseFunc // of ctx
	term *term                   // its deadline
}

// asksToLeave reports whether a request asks for another protocol. Over HTTP/2
// nobody can: extended CONNECT is not offered.
func asksToLeave(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Header["Upgrade"] != nil && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade")
}

// trackLeaving is track for a request that may leave HTTP.
func (s *Server) trackLeaving(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	if !s.life.short.enter() {
		s.refuse(w, r)
		return
	}
	x := exchangeFrom(r.Context())
	ctx, end := context.WithCancelCause(x.ctx.Context)
	x.ctx.Context = ctx // nobody else has the exchange's context yet
	defer end(nil)
	x.short = true
	x.leaving.ctx, x.leaving.life, x.leaving.end = ctx, &s.life, end
	next(w, r)
}

// leave has hijack take the connection over, and the request be long-running from
// then on. It does not if the time of the request, or of the server, is up.
func (l *leaving) leave(x *exchange, hijack func() error) error {
	if !l.life.long.enter(&l.end) {
		return ErrShuttingDown
	}
	err := error(http.ErrHandlerTimeout)
	if l.term.lift() {
		err = hijack()
	}
	if err != nil {
		l.life.long.leave(&l.end)
		return err
	}
	l.life.short.leave()
	x.short, x.ending = false, &l.end
	return nil
}

// closes has a connection that was taken over end with the server, if its handler
// does not see to that in a moment: it may have a last word to say. l may be nil.
func (l *leaving) closes(conn net.Conn) {
	if l == nil || l.ctx == nil {
		return
	}
	context.AfterFunc(l.ctx, func() {
		if errors.Is(context.Cause(l.ctx), ErrShuttingDown) {
			time.AfterFunc(lastWords, func() { _ = conn.Close() })
		}
	})
}

// term is a context whose deadline can be lifted. context has none such: of
// WithTimeout's nothing can be taken back, and one that is cancelled when its time
// is up says Canceled, to those made of it too. Safe for concurrent use.
type term struct {
	context.Context // it ends with this one, for the same cause
	done            chan struct{}
	timer           *time.Timer
	detach          func() bool

	mu    sync.Mutex
	until time.Time // zero: it was lifted
	err   error     // why it ended; nil: it has not
}

func newTerm(ctx context.Context, timeout time.Duration) *term {
	t := &term{Context: ctx, done: make(chan struct{}), until: time.Now().Add(timeout)}
	t.timer = time.AfterFunc(timeout, t.expire)
	t.detach = context.AfterFunc(ctx, func() { t.end(ctx.Err()) })
	return t
}

func (t *term) Done() <-chan struct{} { return t.done }

func (t *term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *term) Deadline() (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until.IsZero() {
		return t.Context.Deadline()
	}
	return t.until, true
}

// lift takes the deadline away; false: it has passed.
func (t *term) lift() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || !time.Now().Before(t.until) {
		return false
	}
	t.until = time.Time{}
	t.timer.Stop()
	return true
}

func (t *term) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.until.IsZero() {
		t.endLocked(context.DeadlineExceeded)
	}
}

// cancel ends it when the request is over.
func (t *term) cancel() {
	t.timer.Stop()
	t.detach()
	t.end(context.Canceled)
}

func (t *term) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(err)
}

func (t *term) endLocked(err error) {
	if t.err == nil {
		t.err = err
		close(t.done)
	}
}
