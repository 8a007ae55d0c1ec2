package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"portico/resource/serve/inflight"
)

// relay copies the body of a long-running answer to the client while ReverseProxy reads
// from it, and is empty itself.
//
// A gateway holds thousands of watches that are quiet most of the time, and then have
// several events at once. Each piece that is copied costs two switches of goroutines and
// a frame. So the relay waits without a buffer, by a read of no bytes, and takes a large
// one from a pool while there is something to copy. If the read of no bytes returns at once,
// it waits with the buffer, which only costs memory.
type relay struct {
	ctx context.Context // of the request
	// watch: a part of the answer is of use to the client.
	watch   bool
	answer  *http.Response
	body    io.ReadCloser
	to      http.ResponseWriter
	buffers *buffers
	log     *slog.Logger
}

// unflushed hides Flush from ReverseProxy, which would flush a stream of events from
// another goroutine while a relay writes.
type unflushed struct{ http.ResponseWriter }

// relayed checks a long-running answer and has its body copied by a relay.
func (p *Maker) relayed(res *http.Response) error {
	if err := checkNotUpgraded(res); err != nil {
		return err
	}
	h := proxiedRequestFrom(res.Request.Context())
	res.Body = &relay{
		ctx: res.Request.Context(), watch: h.act.Verb == "watch", answer: res, body: res.Body, to: h.client, buffers: p.copying, log: p.logger,
	}
	res.ContentLength = 0 // so that ReverseProxy, which copies nothing, needs no timer
	return nil
}

// Read copies the body, and returns the error that the answer ends with. A watch that
// ends because the gateway shuts down is complete: its client continues at another
// gateway from where it is.
func (r *relay) Read([]byte) (int, error) {
	err := r.copy()
	filterTrailers(r.answer.Trailer)
	if r.watch && errors.Is(context.Cause(r.ctx), inflight.ErrShuttingDown) {
		err = io.EOF
	}
	if err != io.EOF {
		r.log.Debug("a long-running answer was cut short", "err", err)
	}
	return 0, err
}

// Close closes the body.
func (r *relay) Close() error { return r.body.Close() }

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
	if err := checkNotUpgraded(res); err != nil || res.Body == http.NoBody {
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
