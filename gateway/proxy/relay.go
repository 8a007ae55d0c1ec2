package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"portico/resource"
	"portico/resource/serve/inflight"
)

// relay copies the body of a long-running answer, after ReverseProxy has returned.
// Where the request has a body, it copies while ReverseProxy reads from it, and is
// empty.
//
// A gateway holds thousands of watches that are quiet most of the time, and
// then wants to move all that has come up in as few pieces as it can: each piece
// costs two changes of goroutines and a frame. So the relay waits without any
// buffer, by a read of no bytes, and borrows a large one while there is
// something to copy. A body that does not wait in such a read is waited for
// with the buffer in hand, which costs memory and nothing else.
type relay struct {
	// ctx is that of the request; watch says that its answer is worth something if
	// it is cut short.
	ctx   context.Context
	watch bool
	// after says that the body is copied after ReverseProxy has returned, which ends
	// the request's body then: there must be none.
	after bool

	// body is that of the answer; nil: there is none to be copied.
	body    io.ReadCloser
	to      http.ResponseWriter
	buffers *buffers
	log     *slog.Logger
	// answer is for its trailers, of which so many were announced.
	answer    *http.Response
	announced int
}

// sendLong sends a long-running request. The hop ends with its answer.
func (h *hop) sendLong(w http.ResponseWriter, r *http.Request) {
	l := &relay{ctx: r.Context(), watch: resource.ActionFrom(r.Context()).Verb == "watch", after: r.ContentLength == 0}
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

// unflushed is for ReverseProxy while a relay writes and flushes what is below: it
// would flush a stream of events from another goroutine.
type unflushed struct{ http.ResponseWriter }

// endLong ends what sendLong began.
func (h *hop) endLong() {
	if h.relay.body != nil {
		h.relay.body.Close()
	}
	h.end()
}

// run copies everything, and ends the answer as ReverseProxy does: one that is cut
// short with a panic, so that its client sees that. A watch that is cut short
// because the gateway shuts down has ended in order: its client goes on elsewhere
// from where it is.
func (r *relay) run(w http.ResponseWriter) {
	r.to = w
	if err := r.end(r.copy()); err == io.EOF {
		r.trailers()
	} else if r.ctx.Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler)
	}
}

// end judges how copying has ended.
func (r *relay) end(err error) error {
	keepTrailers(r.answer.Trailer)
	if r.watch && errors.Is(context.Cause(r.ctx), inflight.ErrShuttingDown) {
		return io.EOF
	}
	if err != io.EOF {
		r.log.Debug("a long-running answer was cut short", "err", err)
	}
	return err
}

// Read copies everything while ReverseProxy waits for it, for a request with a body.
func (r *relay) Read([]byte) (int, error) { return 0, r.end(r.copy()) }

// Close closes the body, for ReverseProxy.
func (r *relay) Close() error {
	body := r.body
	r.body = nil
	return body.Close()
}

// trailers sends what came after the body.
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
	// The header does not wait for the first event.
	if err := r.flush(); err != nil {
		return err
	}
	// It has been sent, and the request that asked for it, too: 2 KB, for as long
	// as a watch lasts.
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

// move copies what has come, in one piece.
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

// relayed judges a long-running answer and leaves its body to a relay.
func (p *Maker) relayed(res *http.Response) error {
	if err := staysHTTP(res); err != nil {
		return err
	}
	h := hopFrom(res.Request.Context())
	r := h.relay
	r.body, r.answer, r.announced, r.buffers, r.log = res.Body, res, len(res.Trailer), p.copying, p.logger
	if res.Body = http.NoBody; !r.after {
		r.to, res.Body = h.client, r
	}
	res.ContentLength = 0 // so that ReverseProxy, which copies nothing, needs no timer
	return nil
}

// pieces is the body of an answer that ReverseProxy copies. Most short answers say
// how long they are, come in one piece, and go out with their header in another.
// What has come of one that does not is sent before the rest is waited for: whoever
// reads it may need it, and a timer for the case costs every answer.
type pieces struct {
	io.ReadCloser
	answer *http.Response
	hop    *hop  // nil: nothing is flushed here
	left   int64 // of the body, in bytes; negative: nobody knows, and ReverseProxy flushes
}

// inPieces judges a short answer.
func inPieces(res *http.Response) error {
	if err := staysHTTP(res); err != nil || res.Body == http.NoBody {
		return err
	}
	h := hopFrom(res.Request.Context())
	if h == nil {
		res.Body = &pieces{ReadCloser: res.Body, answer: res}
		return nil
	}
	h.answer = pieces{ReadCloser: res.Body, answer: res, hop: h, left: res.ContentLength}
	res.Body = &h.answer
	return nil
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.hop != nil && p.hop.some && p.left > 0 {
		_ = http.NewResponseController(p.hop.client).Flush() // a client that is gone shows when there is more for it
	}
	n, err := p.ReadCloser.Read(b)
	p.left -= int64(n)
	if p.hop != nil {
		p.hop.some = n > 0
	}
	if err != nil {
		keepTrailers(p.answer.Trailer)
	}
	return n, err
}
