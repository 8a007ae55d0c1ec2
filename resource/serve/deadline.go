package serve

import (
	"bufio"
	"context"
	"errors"
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
	"portico/resource/rest"
)

// timedOutGrace is how long a handler may go on after its 504 before the client
// of an HTTP/2 stream is told that there is nothing more to come.
const timedOutGrace = time.Second

// deadline gives every request that is not long-running a deadline: the
// configured time, or the shorter one of ?timeout. When it passes before the
// handler has written anything the answer is 504; after that, the connection is
// cut (contract 11.3).
//
// The handler runs on this goroutine and is expected to heed its context; its
// reads of the body and its writes are cut off in any case. One that heeds
// nothing keeps its place among the requests in flight for as long as it really
// runs.
func (s *Server) deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if resource.ActionFrom(r.Context()).LongRunning() {
			next.ServeHTTP(w, r)
			return
		}
		s.withDeadline(next, w, r)
	})
}

func (s *Server) withDeadline(next http.Handler, w http.ResponseWriter, r *http.Request) {
	timeout, err := s.timeoutOf(r)
	if err != nil {
		s.auditRefusal(r, err.Error())
		rest.WriteStatus(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	d := newDeadlineWriter(ctx, w, r)
	d.metrics, d.action = s.metrics, resource.ActionFrom(ctx)
	// Not context.AfterFunc: it costs twice as much, and that the client has
	// gone is nothing that anybody has to be told.
	timer, returned := time.AfterFunc(timeout, d.expire), false
	defer func() {
		switch {
		case !timer.Stop():
			d.expired.Wait()
		case errors.Is(ctx.Err(), context.DeadlineExceeded), d.state.Load() == idle && d.late():
			// The handler heeded its context faster than the timer was
			// started; what it left unsaid, or in the middle, is still a
			// timeout.
			d.expire()
		}
		if state := d.state.Load(); state == cut || state == answered {
			s.metrics.outlived(returned)
		}
		switch {
		case returned:
			d.finish()
		case d.state.Load() == answered:
			// The client has a whole answer. That the handler's own came too
			// late is no reason to cut it off.
			if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
				panic(cause)
			}
		} // any other panic is for who answers those
	}()
	next.ServeHTTP(d, r.WithContext(ctx))
	returned = true
}

// timeoutOf returns how long a request may take.
func (s *Server) timeoutOf(r *http.Request) (time.Duration, error) {
	limit := s.cfg.RequestTimeout
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

// The states of a deadlineWriter:
//
//	idle ── the handler writes ──► begun ── the time is up ──► cut
//	  └──── the time is up ──► answered
const (
	idle int32 = iota
	begun
	cut
	answered
)

// deadlineWriter is the writer of a handler that has a deadline. Handler and
// timer agree on who may write by the state alone: in idle and begun it is the
// handler, in answered and cut nobody. The handler's header is its own until it
// writes, so that it may go on to change it while the timer answers.
type deadlineWriter struct {
	http.ResponseWriter
	ctx     context.Context
	header  http.Header
	metrics *Metrics
	action  *resource.Action

	// What it takes to negotiate the form of the 504, and to count it, apart
	// from the request itself, whose header the handler may be changing by then.
	url                            *url.URL
	method                         string
	protoMajor                     int
	accept, userAgent, contentType []string
	hasBody                        bool

	state   atomic.Int32
	writing sync.Mutex     // held by informational responses and by the timer
	expired sync.WaitGroup // until the timer has done
}

func newDeadlineWriter(ctx context.Context, w http.ResponseWriter, r *http.Request) *deadlineWriter {
	d := &deadlineWriter{
		ResponseWriter: w,
		ctx:            ctx,
		header:         make(http.Header, 8),
		url:            r.URL, method: r.Method, protoMajor: r.ProtoMajor,
		accept: r.Header["Accept"], userAgent: r.Header["User-Agent"], contentType: r.Header["Content-Type"],
		hasBody: r.ContentLength != 0,
	}
	d.expired.Add(1)
	return d
}

// request stands for the request that timed out.
func (d *deadlineWriter) request() *http.Request {
	return &http.Request{Method: d.method, URL: d.url, ProtoMajor: d.protoMajor, Header: http.Header{
		"Accept": d.accept, "User-Agent": d.userAgent, "Content-Type": d.contentType,
	}}
}

// expire is called when the context ends.
func (d *deadlineWriter) expire() {
	defer d.expired.Done()
	if !d.late() {
		return // the client has gone: nobody to answer
	}
	connection := http.NewResponseController(d.ResponseWriter)
	past := time.Unix(1, 0)
	if d.hasBody {
		// A handler that waits for the body would hold up the answer too.
		_ = connection.SetReadDeadline(past)
	}
	request := d.request()
	d.metrics.terminated(request, d.action, http.StatusGatewayTimeout)
	if x := exchangeFrom(d.ctx); x != nil {
		x.terminated = true
	}
	if !d.writing.TryLock() {
		// An informational response waits for a client that does not read.
		_ = connection.SetWriteDeadline(past)
		d.writing.Lock()
	}
	defer d.writing.Unlock()
	if !d.state.CompareAndSwap(idle, answered) {
		d.state.Store(cut) // begun: nothing leads back to idle
		_ = connection.SetWriteDeadline(past)
		return
	}
	if d.hasBody && d.protoMajor == 1 {
		d.ResponseWriter.Header().Set("Connection", "close") // the rest of the body is in the way
	}
	rest.WriteStatus(d.ResponseWriter, request, apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
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
		// Nothing written is an empty 200, with the handler's header.
		maps.Copy(d.ResponseWriter.Header(), d.header)
	case begun:
		d.copyTrailers()
	}
}

// copyTrailers hands on the header fields that come after the body.
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

// late reports whether the time is up. On a busy machine the clock knows before
// the context does; a server behind this one, whose deadline is a moment later,
// then answers in between, and its answer would be begun only to be cut.
func (d *deadlineWriter) late() bool {
	if err := d.ctx.Err(); err != nil {
		return errors.Is(err, context.DeadlineExceeded) // else the client has gone
	}
	deadline, ok := d.ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// claim reports whether the handler may write. The first time it is asked the
// response begins, with the handler's header. A handler that reacts to the end
// of its time must not win over the 504, so a deadline that has passed counts
// even before the timer has run.
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

// Unwrap lets http.ResponseController reach the server's own writer.
func (d *deadlineWriter) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d *deadlineWriter) Header() http.Header { return d.header }

func (d *deadlineWriter) WriteHeader(code int) {
	if code >= 100 && code < 200 && code != http.StatusSwitchingProtocols {
		d.inform(code)
		return
	}
	if d.claim() {
		d.ResponseWriter.WriteHeader(code)
	}
}

// inform sends an informational response. The handler's header goes with it and
// is taken back: what belongs to the final one is the handler's to say again.
func (d *deadlineWriter) inform(code int) {
	d.writing.Lock()
	defer d.writing.Unlock()
	if d.state.Load() != idle {
		return
	}
	h := d.ResponseWriter.Header()
	before := maps.Clone(h)
	maps.Copy(h, d.header)
	d.ResponseWriter.WriteHeader(code)
	clear(h)
	maps.Copy(h, before)
}

func (d *deadlineWriter) Write(b []byte) (int, error) {
	if !d.claim() {
		return 0, http.ErrHandlerTimeout
	}
	return d.ResponseWriter.Write(b)
}

// ReadFrom keeps the server's way of sending files open.
func (d *deadlineWriter) ReadFrom(src io.Reader) (int64, error) {
	if !d.claim() {
		return 0, http.ErrHandlerTimeout
	}
	return io.Copy(d.ResponseWriter, src)
}

// Flush sends what was written.
func (d *deadlineWriter) Flush() { _ = d.FlushError() }

// FlushError is what http.ResponseController calls.
func (d *deadlineWriter) FlushError() error {
	if !d.claim() {
		return http.ErrHandlerTimeout
	}
	return http.NewResponseController(d.ResponseWriter).Flush()
}

// Hijack takes the connection over, and the deadline's end with it: what comes
// after is nobody's response.
func (d *deadlineWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !d.claim() {
		return nil, nil, http.ErrHandlerTimeout
	}
	return http.NewResponseController(d.ResponseWriter).Hijack()
}
