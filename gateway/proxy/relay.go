package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"portico/resource/serve/inflight"
)

// relay copies the body of a long-running answer, after ReverseProxy has returned.
// Where the request has a body, it copies while ReverseProxy reads from it, and is
// empty.
//
// A gateway holds thousands of watches that are quiet most of the time, and then have
// several events at once. Each piece that is copied costs two switches of goroutines and
// a frame. So the relay waits without a buffer, by a read of no bytes, and takes a large
// one from a pool while there is something to copy. A body whose read of no bytes
// returns at once is waited for with the buffer, which only costs memory.
type relay struct {
	// ctx is that of the request. watch: a part of the answer is of use to the client.
	ctx   context.Context
	watch bool
	// after: the body is copied after ReverseProxy has returned. The request must have
	// no body, because ReverseProxy closes that.
	after bool

	// body is that of the answer; nil: there is nothing to copy.
	body    io.ReadCloser
	to      http.ResponseWriter
	buffers *buffers
	log     *slog.Logger
	// answer is for its trailers, of which announced were announced.
	answer    *http.Response
	announced int
}

// sendLong sends a long-running request.
func (h *proxiedRequest) sendLong(w http.ResponseWriter, r *http.Request) {
	l := &relay{ctx: r.Context(), watch: h.act.Verb == "watch", after: r.ContentLength == 0}
	h.relay = l
	defer h.endLong()
	if !l.after {
		w = unflushed{w}
	}
	h.route.Upstream.long.ServeHTTP(w, r)
	if l.body != nil && l.after {
		l.run(w)
	}
}

// unflushed hides Flush from ReverseProxy, which would flush a stream of events from
// another goroutine while a relay writes.
type unflushed struct{ http.ResponseWriter }

// endLong ends a long-running request.
func (h *proxiedRequest) endLong() {
	if h.relay.body != nil {
		h.relay.body.Close()
	}
	h.end()
}

// run copies the body, and ends the answer as ReverseProxy does: with a panic if it is
// incomplete, so that the client notices. A watch that ends because the gateway shuts
// down is complete: its client continues at another gateway from where it is.
func (r *relay) run(w http.ResponseWriter) {
	r.to = w
	if err := r.end(r.copy()); err == io.EOF {
		r.trailers()
	} else if r.ctx.Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler)
	}
}

// end returns the error that the answer ends with; io.EOF if it is complete.
func (r *relay) end(err error) error {
	filterTrailers(r.answer.Trailer)
	if r.watch && errors.Is(context.Cause(r.ctx), inflight.ErrShuttingDown) {
		return io.EOF
	}
	if err != io.EOF {
		r.log.Debug("a long-running answer was cut short", "err", err)
	}
	return err
}

// Read copies the body while ReverseProxy reads, for a request with a body.
func (r *relay) Read([]byte) (int, error) { return 0, r.end(r.copy()) }

// Close closes the body, for ReverseProxy.
func (r *relay) Close() error {
	body := r.body
	r.body = nil
	return body.Close()
}

// trailers sends the trailers.
func (r *relay) trailers() {
	prefix := ""
	if len(r.answer.Trailer) != r.announced {
		prefix = http.TrailerPrefix
	}
	header := r.to.Header()
	for name, values := range r.answer.Trailer {
		header[prefix+name] = append(header[prefix+name], values...)
	}
}

func (r *relay) copy() error {
	// The header is sent before the first event.
	if err := r.flush(); err != nil {
		return err
	}
	// They have been sent, and would take 2 KB for as long as a watch lasts.
	r.answer.Header, r.answer.Request = nil, nil
	for {
		if _, err := r.body.Read(nil); err != nil {
			return err
		}
		if err := r.move(); err != nil {
			return err
		}
	}
}

// move copies what has been received, in one piece.
func (r *relay) move() error {
	buffer := r.buffers.Get()
	defer r.buffers.Put(buffer)
	n, err := r.body.Read(buffer)
	if n > 0 {
		if _, err := r.to.Write(buffer[:n]); err != nil {
			return err
		}
		if err := r.flush(); err != nil {
			return err
		}
	}
	return err
}

func (r *relay) flush() error { return http.NewResponseController(r.to).Flush() }

// relayed checks a long-running answer and leaves its body to a relay.
func (p *Maker) relayed(res *http.Response) error {
	if err := staysHTTP(res); err != nil {
		return err
	}
	h := proxiedRequestFrom(res.Request.Context())
	r := h.relay
	r.body, r.answer, r.announced, r.buffers, r.log = res.Body, res, len(res.Trailer), p.copying, p.logger
	if res.Body = http.NoBody; !r.after {
		r.to, res.Body = h.client, r
	}
	res.ContentLength = 0 // so that ReverseProxy, which copies nothing, needs no timer
	return nil
}

// pieces is the body of an answer that ReverseProxy copies. Most short answers have a
// Content-Length, are received in one piece and sent with their header in another. A
// part of any other is flushed before the rest is waited for, since the client may need
// it; a flush timer would cost every answer.
type pieces struct {
	io.ReadCloser
	answer  *http.Response
	proxied *proxiedRequest // nil: nothing is flushed here
	left    int64           // of the body, in bytes; negative: unknown, and ReverseProxy flushes
}

// inPieces checks an answer with a deadline.
func inPieces(res *http.Response) error {
	if err := staysHTTP(res); err != nil || res.Body == http.NoBody {
		return err
	}
	h := proxiedRequestFrom(res.Request.Context())
	if h == nil {
		res.Body = &pieces{ReadCloser: res.Body, answer: res}
		return nil
	}
	h.answer = pieces{ReadCloser: res.Body, answer: res, proxied: h, left: res.ContentLength}
	res.Body = &h.answer
	return nil
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.proxied != nil && p.proxied.pending && p.left > 0 {
		_ = http.NewResponseController(p.proxied.client).Flush() // the next write reports a client that is gone
	}
	n, err := p.ReadCloser.Read(b)
	p.left -= int64(n)
	if p.proxied != nil {
		p.proxied.pending = n > 0
	}
	if err != nil {
		filterTrailers(p.answer.Trailer)
	}
	return n, err
}
