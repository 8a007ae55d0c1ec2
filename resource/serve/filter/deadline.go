package filter

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/serve/metrics"
)

// deadline gives every request that is not long-running a deadline: the configured time,
// or ?timeout if that is shorter. If it passes before the handler has written anything,
// the response is 504; else the connection is cut.
//
// The handler runs on this goroutine and should heed its context; its reads of the body
// and its writes are cut off in any case. A handler that continues keeps its slot in
// flight. A connection that is hijacked in time has no deadline from then on.
func (c *Chain) deadline(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if resource.ActionFrom(r.Context()).LongRunning() {
			next(w, r)
			return
		}
		c.withDeadline(next, w, r)
	}
}

func (c *Chain) withDeadline(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	timeout, err := c.timeoutOf(r)
	if err != nil {
		c.auditRefusal(r, err.Error())
		response.WriteStatus(w, r, err)
		return
	}
	rs := stateOf(r.Context())
	defer rs.limitTime(timeout)()
	d, returned := newDeadlineWriter(w, r, rs, c.metrics), false
	// context.AfterFunc would cost twice as much, and also run if the client has gone.
	d.start(timeout)
	defer func() {
		d.stop()
		if state := d.state.Load(); state == cut || state == answered {
			c.metrics.EndedAfterTimeout(returned)
		}
		switch {
		case returned:
			d.finish()
		case d.state.Load() == answered:
			// The client has the whole 504, so the connection is not cut.
			if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
				panic(cause)
			}
		} // recover handles any other panic
	}()
	next(d, r)
	returned = true
}

// limitTime sets the deadline of the request's context, which no other goroutine has yet.
func (rs *requestState) limitTime(timeout time.Duration) (cancel func()) {
	if rs.upgrade != nil {
		return rs.upgrade.limitTime(timeout)
	}
	rs.ctx.Context, cancel = context.WithTimeout(rs.ctx.Context, timeout)
	return cancel
}

// timeoutOf returns the time until the deadline.
func (c *Chain) timeoutOf(r *http.Request) (time.Duration, error) {
	timeout, err := c.askedTimeout(r)
	return timeout - min(c.cfg.Ahead, timeout/10), err
}

// askedTimeout returns ?timeout, or RequestTimeout if that is shorter.
func (c *Chain) askedTimeout(r *http.Request) (time.Duration, error) {
	limit := c.cfg.RequestTimeout
	if r.URL.RawQuery == "" {
		return limit, nil
	}
	asked := r.URL.Query().Get("timeout")
	if asked == "" {
		return limit, nil
	}
	timeout, err := time.ParseDuration(asked)
	if err != nil {
		return 0, apierrors.NewBadRequest("invalid timeout specified in the request URL")
	}
	if timeout <= 0 || timeout > limit {
		return limit, nil
	}
	return timeout, nil
}

// timedOutGrace is how long a handler may continue after its 504 before its HTTP/2 stream
// is reset.
const timedOutGrace = time.Second

// The states of a deadlineWriter:
//
//	idle ── the handler writes ──► begun ── the deadline passes ──► cut
//	  └──── the deadline passes ──► answered
//
// and from idle and begun to hijacked.
const (
	idle int32 = iota
	begun
	cut
	answered
	hijacked
)

// deadlineWriter is the response writer of a handler with a deadline. The state says
// whether the handler may write: it may in idle and begun. The handler has a header of its
// own until it writes, so it may change it while the timer answers.
type deadlineWriter struct {
	http.ResponseWriter
	rs      *requestState
	header  http.Header
	metrics *metrics.Metrics

	// What the 504 needs of the request. The handler may be changing the header of the request.
	url                            *url.URL
	method                         string
	protoMajor                     int
	accept, userAgent, contentType []string
	hasBody                        bool

	state   atomic.Int32
	writing sync.Mutex     // held by informational responses and by the timer
	hijack  sync.Mutex     // held by Hijack and by the timer
	expired sync.WaitGroup // done when the timer has run or was stopped
	timer   *time.Timer
}

func newDeadlineWriter(w http.ResponseWriter, r *http.Request, rs *requestState, m *metrics.Metrics) *deadlineWriter {
	return &deadlineWriter{
		ResponseWriter: w, rs: rs, header: make(http.Header, 8), metrics: m,
		url: r.URL, method: r.Method, protoMajor: r.ProtoMajor, hasBody: r.ContentLength != 0,
		accept: r.Header["Accept"], userAgent: r.Header["User-Agent"], contentType: r.Header["Content-Type"],
	}
}

// start starts the timer.
func (d *deadlineWriter) start(timeout time.Duration) {
	d.expired.Add(1)
	d.timer = time.AfterFunc(timeout, d.expire)
}

// stop ends the timer when the handler has returned.
func (d *deadlineWriter) stop() {
	switch {
	case !d.timer.Stop():
		d.expired.Wait()
	case context.Cause(&d.rs.ctx) == context.DeadlineExceeded, d.state.Load() == idle && d.late():
		// The handler returned before the timer ran, because its context had ended.
		d.expire()
	default:
		d.expired.Done()
	}
}

// request returns a request with what the 504 needs.
func (d *deadlineWriter) request() *http.Request {
	return &http.Request{Method: d.method, URL: d.url, ProtoMajor: d.protoMajor, Header: http.Header{
		"Accept": d.accept, "User-Agent": d.userAgent, "Content-Type": d.contentType,
	}}
}

// expire answers 504 or cuts the connection.
func (d *deadlineWriter) expire() {
	defer d.expired.Done()
	d.hijack.Lock()
	defer d.hijack.Unlock()
	if d.state.Load() == hijacked || !d.late() {
		return // not late: the client has gone
	}
	connection := http.NewResponseController(d.ResponseWriter)
	past := time.Unix(1, 0)
	if d.hasBody {
		// A handler that reads the body would delay the response.
		_ = connection.SetReadDeadline(past)
	}
	request := d.request()
	d.metrics.Terminated(request, d.rs.action, http.StatusGatewayTimeout)
	d.rs.terminated = true
	if !d.writing.TryLock() {
		// An informational response is blocked: the client does not read.
		_ = connection.SetWriteDeadline(past)
		d.writing.Lock()
	}
	defer d.writing.Unlock()
	if !d.state.CompareAndSwap(idle, answered) {
		d.state.Store(cut) // it was begun
		_ = connection.SetWriteDeadline(past)
		return
	}
	d.rs.warnings.collect(false)
	if d.hasBody && d.protoMajor == 1 {
		d.ResponseWriter.Header().Set("Connection", "close") // the rest of the body was not read
	}
	response.WriteStatus(d.ResponseWriter, request, apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
	_ = connection.Flush()
	if d.protoMajor == 2 {
		_ = connection.SetWriteDeadline(time.Now().Add(timedOutGrace))
	}
}

// finish ends the response when the handler has returned.
func (d *deadlineWriter) finish() {
	switch d.state.Load() {
	case cut:
		panic(http.ErrAbortHandler)
	case idle:
		// An empty 200, with the handler's header.
		maps.Copy(d.ResponseWriter.Header(), d.header)
	case begun:
		d.copyTrailers()
	}
}

// copyTrailers copies the header fields that follow the body.
func (d *deadlineWriter) copyTrailers() {
	for name, values := range d.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			d.ResponseWriter.Header()[name] = values
		}
	}
	for _, line := range d.header["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values := d.header[name]; values != nil {
				d.ResponseWriter.Header()[name] = values
			}
		}
	}
}

// late reports whether the deadline has passed. On a busy machine the context ends later
// than its deadline; a response that began in between would be cut.
func (d *deadlineWriter) late() bool {
	if d.rs.ctx.Err() != nil {
		return context.Cause(&d.rs.ctx) == context.DeadlineExceeded
	}
	deadline, ok := d.rs.ctx.Deadline()
	if u := d.rs.upgrade; u != nil {
		deadline, ok = u.deadline, true
	}
	return ok && !time.Now().Before(deadline)
}

// claim reports whether the handler may write. The first call begins the response with the
// handler's header. After the deadline it returns false even if the timer has not run: a
// handler's reaction to the end of its context must not replace the 504.
func (d *deadlineWriter) claim() bool {
	switch d.state.Load() {
	case begun:
		return true
	case idle:
		if d.late() || !d.state.CompareAndSwap(idle, begun) {
			return false
		}
		maps.Copy(d.ResponseWriter.Header(), d.header)
		return true
	}
	return false
}

// Unwrap is for http.ResponseController.
func (d *deadlineWriter) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d *deadlineWriter) Header() http.Header { return d.header }

func (d *deadlineWriter) WriteHeader(code int) {
	if !informational(code) && d.claim() {
		d.ResponseWriter.WriteHeader(code)
	}
}

func (d *deadlineWriter) Write(b []byte) (int, error) {
	if !d.claim() {
		return 0, http.ErrHandlerTimeout
	}
	return d.ResponseWriter.Write(b)
}

// ReadFrom keeps net/http's use of sendfile.
func (d *deadlineWriter) ReadFrom(src io.Reader) (int64, error) {
	if !d.claim() {
		return 0, http.ErrHandlerTimeout
	}
	return io.Copy(d.ResponseWriter, src)
}

// Flush implements http.Flusher.
func (d *deadlineWriter) Flush() { _ = d.FlushError() }

// FlushError is for http.ResponseController.
func (d *deadlineWriter) FlushError() error {
	if !d.claim() {
		return http.ErrHandlerTimeout
	}
	return http.NewResponseController(d.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker for requests that ask for another protocol. It removes
// the deadline. The handler may have written the status.
func (d *deadlineWriter) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	if d.rs.upgrade == nil {
		return nil, nil, http.ErrNotSupported
	}
	d.hijack.Lock()
	defer d.hijack.Unlock()
	if state := d.state.Load(); state != idle && state != begun {
		return nil, nil, http.ErrHandlerTimeout
	}
	err = d.rs.upgrade.begin(d.rs, func() error {
		conn, rw, err = http.NewResponseController(d.ResponseWriter).Hijack()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	d.state.Store(hijacked)
	// The hijacker writes the header from the handler's.
	maps.Copy(d.header, d.ResponseWriter.Header())
	return conn, rw, nil
}
