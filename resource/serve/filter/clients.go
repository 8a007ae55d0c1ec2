package filter

import (
	"cmp"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/fairshare"
	"portico/resource/response"
	"portico/resource/rest/body"
)

// clientLimits bound the requests that wait for their clients to send bodies or to read responses: so
// many in each priority level, whose name is "" without FlowControl. Safe for concurrent use.
type clientLimits struct {
	max int // 0: requests do not wait in a limit

	mu     sync.Mutex
	levels map[string]*fairshare.Limit
}

// of returns the limit of a level.
func (c *clientLimits) of(level string) *fairshare.Limit {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.levels[level]
	if limit == nil {
		if c.levels == nil {
			c.levels = map[string]*fairshare.Limit{}
		}
		limit = fairshare.New(c.max, 0)
		c.levels[level] = limit
	}
	return limit
}

// Max implements metrics.Bound.
func (c *clientLimits) Max() int { return c.max }

// InUse implements metrics.Bound. It returns the number of the level with the most requests.
func (c *clientLimits) InUse() (most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, limit := range c.levels {
		most = max(most, limit.InUse())
	}
	return most
}

// clientsOf returns the limit in which a request waits for its client, or nil if it waits in none.
func (c *Chain) clientsOf(a *resource.Action) *fairshare.Limit {
	if c.limits.clients.max == 0 {
		return nil
	}
	if c.cfg.FlowControl == nil {
		if a.User.Unlimited() {
			return nil
		}
		return c.limits.clients.of("")
	}
	if level := c.cfg.FlowControl.Classify(a); level != "" {
		return c.limits.clients.of(level)
	}
	return nil
}

// awaitBody reads the body of a request that is allowed, and reports whether the request proceeds.
// A client that does not send the body holds no seats: meanwhile the request waits in the limit of
// clients of its level, and may be ended in favour of another one. It reserves reserve bytes of memory
// before it reads; body.Read reserves what exceeds body.Eager.
func (c *Chain) awaitBody(w http.ResponseWriter, r *http.Request, memory *body.Budget, reserve int) bool {
	action := resource.ActionFrom(r.Context())
	sent, limit := newClientBody(w, r), c.clientsOf(action)
	rs, waiter := stateOf(r.Context()), &fairshare.Waiter{User: action.LimitKey(), End: func() { sent.end(errReplaced()) }}
	rs.body = memory.Hold(action)
	if limit != nil {
		defer limit.Leave(waiter)
		if !limit.Enter(waiter, 1) {
			c.tooMany(w, r, action, retryAfter)
			return false
		}
		sent.progress = waiter.Progress
		rs.body = memory.Await(action, waiter)
	}
	if !c.authorize(w, r) {
		return false
	}
	waiter.Progress()
	if err := rs.body.Grow(reserve); err != nil {
		c.metrics.Terminated(r, action, http.StatusTooManyRequests)
		response.WriteStatus(w, r, err)
		return false
	}
	data, err := body.Read(r, &rs.body)
	if err != nil {
		if status := resource.AsStatus(err); sent.ended() {
			c.metrics.Terminated(r, action, int(status.Code))
			endOfHTTP1(w, r)
		}
		response.WriteStatus(w, r, err)
		return false
	}
	body.Put(r, data)
	return true
}

// endOfHTTP1 ends an HTTP/1.1 connection on which the rest of a body may still come.
func endOfHTTP1(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// A body may keep the server waiting for bodyPatience. Each bodyRate bytes that arrive return a
// second of it: a client that sends as many a second may go on, and one whose network fails for less than
// bodyPatience too.
const (
	bodyPatience = 10 * time.Second
	bodyRate     = 1 << 10
)

// errStalled is the 408 for a body that does not come.
func errStalled() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonTimeout,
		Message: "the client does not send the request body: it may keep the server waiting for 10 seconds, and a second for each 1024 bytes",
	}}
}

// errReplaced is the 429 for a request whose body was awaited, and is not any more because the
// slot or the memory was needed.
func errReplaced() error {
	return apierrors.NewTooManyRequests("Too many requests wait for their bodies, please try again later.", retryAfter)
}

// clientBody is the body of a request. Read fails after a call of end or finish, and, unless the body is
// a stream, if it waits too long for the client.
type clientBody struct {
	io.ReadCloser
	http2    bool
	stream   bool
	stop     func(time.Time) error // http.ResponseController.SetReadDeadline
	progress func()                // is called when something has arrived

	readLock sync.Mutex    // is held by Read
	timer    *time.Timer   // of the Read in progress
	patience time.Duration // what is left of bodyPatience

	mu      sync.Mutex
	reading bool
	cause   error // of the end; nil before the end
}

// newClientBody makes a clientBody the body of a request.
func newClientBody(w http.ResponseWriter, r *http.Request) *clientBody {
	b := &clientBody{
		ReadCloser: r.Body, http2: r.ProtoMajor == 2,
		stop: http.NewResponseController(w).SetReadDeadline, progress: func() {}, patience: bodyPatience,
	}
	body.Replace(r, b)
	if rs := stateOf(r.Context()); rs != nil {
		rs.sent = b
	}
	return b
}

// end makes Read fail with an error. Safe for concurrent use.
func (b *clientBody) end(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause != nil {
		return
	}
	if b.cause = cause; b.reading {
		// Only then: a deadline that has passed would end the connection after the body as well. An
		// error means that the connection has ended.
		_ = b.stop(time.Unix(1, 0))
	}
}

// finish makes Read fail, and the timer of a Read that goes on, as the connection to a server may read,
// leave the ResponseWriter alone: it must not be used after the handler. Over HTTP/2 finish ends a Read in
// progress and waits for it: a Read that outlasts the handler can make net/http close the connection with
// all its requests (golang.org/issue/56940). net/http can still close it when a response is cut at a deadline.
func (b *clientBody) finish() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.cause = cmp.Or(b.cause, http.ErrBodyReadAfterClose)
	b.mu.Unlock()
	if b.http2 {
		_ = b.ReadCloser.Close() // never fails
		b.readLock.Lock()
		defer b.readLock.Unlock()
	}
}

// ended reports whether end or finish was called.
func (b *clientBody) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause != nil
}

// note records that a Read begins or has ended, and returns the cause of the end.
func (b *clientBody) note(begins bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = begins && b.cause == nil
	return b.cause
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	b.readLock.Lock()
	defer b.readLock.Unlock()
	if err := b.note(true); err != nil {
		return 0, err
	}
	if b.stream {
		n, err := b.ReadCloser.Read(p)
		return n, cmp.Or(b.note(false), err)
	}
	began := time.Now()
	if b.timer == nil {
		b.timer = time.AfterFunc(b.patience, func() { b.end(errStalled()) })
	} else {
		b.timer.Reset(b.patience)
	}
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	b.patience = max(0, min(bodyPatience, b.patience-time.Since(began)+time.Duration(n)*time.Second/bodyRate))
	if cause := b.note(false); cause != nil {
		return n, cause
	}
	if n > 0 {
		b.progress()
	}
	return n, err
}

// sendingTime is how long a response is sent before its request gives back its seats for a slot in
// the limit of clients of its level: a client that does not read holds no seats.
const sendingTime = time.Second

// sending is how the response of a request with seats is sent. The zero value is one that has not
// begun. Safe for concurrent use.
type sending struct {
	limit  *fairshare.Limit // in which it waits instead of holding seats; if nil, it keeps the seats
	waiter fairshare.Waiter
	timer  *time.Timer

	mu    sync.Mutex
	ended bool
}

// beginSending makes the request give back its seats when sendingTime has passed, for a slot in limit. If
// that slot is taken back, the response is cut.
func (rs *requestState) beginSending() {
	s := &rs.sending
	if s.limit == nil {
		return
	}
	s.waiter.User, s.waiter.End = rs.slotUser, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ended {
			// An error means that the connection has ended.
			_ = http.NewResponseController(rs.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
		}
	}
	s.timer = time.AfterFunc(sendingTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ended && s.limit.Enter(&s.waiter, 1) {
			rs.releaseSlot()
		}
	})
}

// progress records that the client has read something.
func (s *sending) progress() {
	if s.timer != nil {
		s.waiter.Progress()
	}
}

// end releases the slot.
func (s *sending) end() {
	if s.timer == nil {
		return
	}
	s.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.limit.Leave(&s.waiter)
}

// sendingReader is what a response is copied from. A Read means that what was read before has been
// sent.
type sendingReader struct {
	io.Reader
	sending *sending
}

// Read implements io.Reader.
func (r sendingReader) Read(p []byte) (int, error) {
	r.sending.progress()
	return r.Reader.Read(p)
}
