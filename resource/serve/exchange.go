package serve

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/fairshare"
)

// exchange is what the filters know of one request and its response, and the
// outermost response writer. It belongs to the request's goroutine, except
// where it says otherwise.
type exchange struct {
	http.ResponseWriter
	start  time.Time
	action *resource.Action
	acting *resource.Action // as it goes on after impersonation; nil: it has not come so far
	ctx    exchangeContext  // of the request, for what comes below
	// client is the context that ends when the client has gone.
	client context.Context

	// auditID, cacheControl and closing go into the header when it is written; they
	// do not depend on what the handler does to its header before. A reverse proxy
	// empties it after each informational response.
	auditID [1]string // "" until there is one
	// onHeader, if not nil, is called once, with the final status.
	onHeader func(code int)
	// place, if not nil, is among whom the request is in flight: until it is over, is
	// passed on, or its answer turns out to last, as a stream of events or another
	// protocol does.
	place atomic.Pointer[fairshare.Limit]
	// lasting, if not nil, is the limit of long-running requests in which it has a
	// place until its end.
	lasting *fairshare.Limit
	// holder is the name of the user that has these places.
	holder string
	// leaving, if not nil: the request asks to leave HTTP.
	leaving  *leaving
	attached atomic.Value // an Attachment
	audited  atomic.Pointer[audit.Request]

	code  int   // the status, 0 until it is written
	bytes int64 // of the body, written so far

	// Side by side, or each would take the room of a word.
	cacheControl bool
	hijacked     bool
	uncounted    bool // somebody else counts the request
	terminated   bool // the deadline has counted its end
	short        bool // it is one of life.short
	// closing: the connection is to end after the requests that are under way. The
	// deadline may answer meanwhile.
	closing atomic.Bool

	// ending is what it is known by as one of life.long; nil: it is none.
	ending *context.CancelCauseFunc

	warnings  warnings
	component string // of whom the request is counted; "" is the API server
	// mark is when, since the start, the last filter that is timed let the
	// request through.
	mark time.Duration
	// took is how long the request was in filters that audit tells of, 0: it was in
	// none; and in writing its answer, where it is audited.
	took  struct{ authentication, authorization, impersonation, writing time.Duration }
	parts atomic.Pointer[parts]

	// For the RequestLog.
	firstByte time.Duration
	upstream  Upstream
	traceID   string
}

type exchangeKey struct{}

// exchangeContext is where handlers find the exchange and the Action. It is part
// of the exchange: a value of its own for each would cost an allocation.
type exchangeContext struct {
	resource.ActionContext
	x *exchange
}

// Value implements context.Context.
func (c *exchangeContext) Value(key any) any {
	if key == (exchangeKey{}) {
		return c.x
	}
	if a := c.x.attachment(); a != nil {
		if v := a.Value(key); v != nil {
			return v
		}
	}
	if q := c.x.audited.Load(); q != nil {
		if v := q.Value(key); v != nil {
			return v
		}
	}
	return c.ActionContext.Value(key)
}

// exchangeFrom returns the exchange of a request; nil outside of a chain.
func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// open begins the exchange: it parses the request line into the Action and
// puts both into the context.
func (s *Server) open(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{ResponseWriter: w, start: time.Now(), action: resource.ParseAction(r)}
		if s.cfg.LongRunning != nil && !x.action.LongRunning() {
			x.action.Streams = s.cfg.LongRunning(r, x.action)
		}
		if asksToLeave(r) {
			x.leaving = new(leaving)
		}
		x.identify(r)
		x.client = r.Context()
		defer s.leave(x)
		x.ctx = exchangeContext{resource.ActionContext{Context: x.client, Action: x.action}, x}
		next(x, r.WithContext(&x.ctx))
		if x.code == 0 {
			x.setHeader(http.StatusOK) // the server writes it for those who write nothing
		}
	}
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader writes the status once; informational ones pass. A second one is
// dropped.
func (x *exchange) WriteHeader(code int) {
	switch {
	case x.code != 0:
		return
	case code >= 100 && code < 200 && code != http.StatusSwitchingProtocols:
		x.inform(code)
		return
	}
	x.setHeader(code)
	x.ResponseWriter.WriteHeader(code)
}

// inform sends an informational response. Over HTTP/2 net/http has the connection
// read the header itself, and where the client has gone does not wait for that:
// whoever changes the header next races with it, and a map that is changed while it
// is read ends the process. Of a header with a Content-Length, which is not sent
// with these, it makes a copy.
func (x *exchange) inform(code int) {
	h := x.ResponseWriter.Header()
	if _, there := h["Content-Length"]; !there {
		h["Content-Length"] = nil
		defer delete(h, "Content-Length")
	}
	x.ResponseWriter.WriteHeader(code)
}

// setHeader puts what the server promises into the header and remembers the
// status.
func (x *exchange) setHeader(code int) {
	h := x.ResponseWriter.Header()
	if x.auditID[0] != "" {
		h[headerAuditID] = x.auditID[:]
	}
	if x.cacheControl && h["Cache-Control"] == nil {
		h["Cache-Control"] = []string{"no-cache, private"}
	}
	if x.closing.Load() {
		h["Connection"] = []string{"close"} // over HTTP/2, net/http's way to say GOAWAY
	}
	x.warnings.put(h)
	if a := x.attachment(); a != nil {
		a.OnHeader(h, code)
	}
	if q := x.audited.Load(); q != nil {
		q.OnHeader(h, code)
	}
	if code == http.StatusSwitchingProtocols || x.action.Streams && resource.IsEventStream(h) {
		x.leavePlace()
	}
	x.code = code
	x.firstByte = time.Since(x.start)
	if x.onHeader != nil {
		x.onHeader(code)
	}
}

func (x *exchange) Write(b []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	q := x.audited.Load()
	if q == nil {
		n, err := x.ResponseWriter.Write(b)
		x.bytes += int64(n)
		return n, err
	}
	q.OnWrite(b)
	begun := time.Now()
	n, err := x.ResponseWriter.Write(b)
	x.took.writing += time.Since(begun)
	x.bytes += int64(n)
	return n, err
}

// ReadFrom keeps the server's way of sending files open.
func (x *exchange) ReadFrom(src io.Reader) (int64, error) {
	x.WriteHeader(http.StatusOK)
	if q := x.audited.Load(); q != nil {
		src = q.Reading(src)
	}
	n, err := io.Copy(x.ResponseWriter, src)
	x.bytes += n
	return n, err
}

// Flush sends what was written.
func (x *exchange) Flush() { _ = x.FlushError() }

// FlushError is what http.ResponseController calls.
func (x *exchange) FlushError() error {
	x.WriteHeader(http.StatusOK)
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Hijack takes the connection over; http.ErrNotSupported where it is shared
// with other requests (HTTP/2).
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil && !x.hijacked {
		x.leaving.closes(conn)
		x.hijacked = true
		if x.code == 0 {
			// Whoever hijacks writes the header itself, from this map.
			x.setHeader(http.StatusSwitchingProtocols)
		}
	}
	return conn, rw, err
}

// CountAs has the request counted as one of another component than the API
// server: what the gateway makes of a request for somebody else's API is the
// aggregator's.
func CountAs(ctx context.Context, component string) {
	if x := exchangeFrom(ctx); x != nil {
		x.component = component
	}
}

// lap returns how long it is since mark, and sets mark to now.
func (x *exchange) lap() time.Duration {
	before := x.mark
	x.mark = time.Since(x.start)
	return x.mark - before
}

// CountedElsewhere keeps the request out of this process's request metrics: the
// server that answered has counted it. To be called before the response is
// written, on the request's goroutine.
func CountedElsewhere(ctx context.Context) {
	if x := exchangeFrom(ctx); x != nil {
		x.uncounted = true
	}
}
