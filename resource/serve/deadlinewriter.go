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

	"portico/resource/rest"
	"portico/resource/serve/metrics"
)

// timedOutGrace is how long a handler may go on after its 504 before the client
// of an HTTP/2 stream is told that there is nothing more to come.
const timedOutGrace = time.Second

// The states of a deadlineWriter:
//
//	idle ── the handler writes ──► begun ── the time is up ──► cut
//	  └──── the time is up ──► answered
//
// and from idle and begun to away, if the handler takes the connection over.
// When its request is over it is over, until it is that of another.
const (
	over int32 = iota
	idle
	begun
	cut
	answered
	away
)

// deadlineWriter is the writer of a handler that has a deadline. Handler and
// timer agree on who may write by the state alone: in idle and begun it is the
// handler, in answered, cut and away nobody. The handler's header is its own until it
// writes, so that it may go on to change it while the timer answers.
type deadlineWriter struct {
	http.ResponseWriter
	x       *exchange
	header  http.Header
	metrics *metrics.Metrics

	// What it takes to negotiate the form of the 504, and to count it, apart
	// from the request itself, whose header the handler may be changing by then.
	url                            *url.URL
	method                         string
	protoMajor                     int
	accept, userAgent, contentType []string
	hasBody                        bool

	state   atomic.Int32
	writing sync.Mutex     // held by informational responses and by the timer
	taking  sync.Mutex     // held by who takes the connection over, and by the timer
	expired sync.WaitGroup // until the timer has done, or never will
	timer   *time.Timer
}

// keptHeader is how many fields a header may have had that is used again: one that
// has grown stays as large.
const keptHeader = 32

// deadlineWriters makes writers of those that are done with: with its header and
// its timer, one is a third of what a request takes.
type deadlineWriters struct {
	metrics *metrics.Metrics
	done    sync.Pool // of *deadlineWriter, which nobody has
}

// get returns the writer of a request.
func (p *deadlineWriters) get(w http.ResponseWriter, r *http.Request, x *exchange) *deadlineWriter {
	d, _ := p.done.Get().(*deadlineWriter)
	if d == nil {
		d = &deadlineWriter{header: make(http.Header, 8), metrics: p.metrics}
	}
	d.ResponseWriter, d.x = w, x
	d.url, d.method, d.protoMajor = r.URL, r.Method, r.ProtoMajor
	d.accept, d.userAgent, d.contentType = r.Header["Accept"], r.Header["User-Agent"], r.Header["Content-Type"]
	d.hasBody = r.ContentLength != 0
	d.state.Store(idle)
	return d
}

// put takes back a writer whose handler has returned and whose timer is over:
// nobody may use it any more, as it is with the server's own. One that was hijacked
// is left to who has the connection.
func (p *deadlineWriters) put(d *deadlineWriter) {
	if d.x.hijacked || len(d.header) > keptHeader {
		return
	}
	clear(d.header)
	d.ResponseWriter, d.x, d.url = nil, nil, nil
	d.accept, d.userAgent, d.contentType = nil, nil, nil
	d.state.Store(over)
	p.done.Put(d)
}

// start begins the time.
func (d *deadlineWriter) start(timeout time.Duration) {
	d.expired.Add(1)
	if d.timer == nil {
		d.timer = time.AfterFunc(timeout, d.expire)
		return
	}
	d.timer.Reset(timeout)
}

// stop ends it, when the handler is done: the timer does nothing from then on.
func (d *deadlineWriter) stop() {
	switch {
	case !d.timer.Stop():
		d.expired.Wait()
	case errors.Is(d.x.ctx.Err(), context.DeadlineExceeded), d.state.Load() == idle && d.late():
		// The handler heeded its context faster than the timer was started; what
		// it left unsaid, or in the middle, is still a timeout.
		d.expire()
	default:
		d.expired.Done()
	}
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
	d.taking.Lock()
	defer d.taking.Unlock()
	if d.state.Load() == away || !d.late() {
		return // the connection is another's, or the client has gone: nobody to answer
	}
	connection := http.NewResponseController(d.ResponseWriter)
	past := time.Unix(1, 0)
	if d.hasBody {
		// A handler that waits for the body would hold up the answer too.
		_ = connection.SetReadDeadline(past)
	}
	request := d.request()
	d.metrics.Terminated(request, d.x.action, http.StatusGatewayTimeout)
	d.x.terminated = true
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
	d.x.warnings.collect(false)
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
	if err := d.x.ctx.Err(); err != nil {
		return errors.Is(err, context.DeadlineExceeded) // else the client has gone
	}
	deadline, ok := d.x.ctx.Deadline()
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

// Hijack takes the connection over, which is the deadline's end: what comes after
// is nobody's response. It is for requests that ask to leave HTTP. The handler may
// have written the status.
func (d *deadlineWriter) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	if d.x.leaving == nil {
		return nil, nil, http.ErrNotSupported
	}
	d.taking.Lock()
	defer d.taking.Unlock()
	if state := d.state.Load(); state != idle && state != begun {
		return nil, nil, http.ErrHandlerTimeout
	}
	err = d.x.leaving.leave(d.x, func() error {
		conn, rw, err = http.NewResponseController(d.ResponseWriter).Hijack()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	d.state.Store(away)
	// Who hijacks writes the header itself, from the handler's.
	maps.Copy(d.header, d.ResponseWriter.Header())
	return conn, rw, nil
}
