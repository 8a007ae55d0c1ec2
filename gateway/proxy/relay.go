package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"

	"portico/resource"
	"portico/resource/serve"
)

// relay copies the body of a long-running answer, and stands in for it: whoever
// reads the relay finds it empty once everything has been sent.
//
// A gateway holds thousands of watches that are quiet most of the time, and
// then wants to move all that has come up in as few pieces as it can: each piece
// costs two changes of goroutines and a frame. So the relay waits without any
// buffer, by a read of no bytes, and borrows a large one while there is
// something to copy. A body that does not wait in such a read is waited for
// with the buffer in hand, which costs memory and nothing else.
type relay struct {
	body    io.ReadCloser
	to      http.ResponseWriter
	buffers *buffers
	// answer is what ReverseProxy holds for as long as the relay runs.
	answer *http.Response
	// ctx is that of a watch, and nil of what is worth nothing if it is cut
	// short.
	ctx context.Context
}

// Read copies everything; its error is that of the body, or of the client that
// does not take it. A watch that is cut short because the gateway shuts down has
// ended in order: its client goes on elsewhere from where it is. It is called
// once.
func (r *relay) Read([]byte) (int, error) {
	err := r.copy()
	if r.ctx != nil && errors.Is(context.Cause(r.ctx), serve.ErrShuttingDown) {
		err = io.EOF
	}
	return 0, err
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

// Close closes the body.
func (r *relay) Close() error { return r.body.Close() }

// relayed judges a long-running answer and has a relay copy it.
func (p *Maker) relayed(res *http.Response) error {
	if err := staysHTTP(res); err != nil {
		return err
	}
	h := hopFrom(res.Request.Context())
	copied := &relay{body: res.Body, to: h.client, buffers: p.copying, answer: res}
	if ctx := h.request.Context(); resource.ActionFrom(ctx).Verb == "watch" {
		copied.ctx = ctx
	}
	res.Body = copied
	res.ContentLength = 0 // so that ReverseProxy, which copies nothing, needs no timer
	return nil
}

// pieces is the body of a short answer that says how long it is. Most such
// answers come in one piece, and go out with their header in another. What has
// come of one that does not is sent before the rest is waited for: whoever reads
// it may need it, and a timer for the case costs every answer.
type pieces struct {
	io.ReadCloser
	to   http.ResponseWriter
	left int64 // of the body, in bytes
	some bool  // there is something to be sent
}

// inPieces judges a short answer.
func inPieces(res *http.Response) error {
	if err := staysHTTP(res); err != nil {
		return err
	}
	h := hopFrom(res.Request.Context())
	if h == nil || res.ContentLength <= 0 || res.Body == http.NoBody {
		return nil // ReverseProxy flushes what has no length
	}
	h.answer = pieces{ReadCloser: res.Body, to: h.client, left: res.ContentLength}
	res.Body = &h.answer
	return nil
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.some && p.left > 0 {
		_ = http.NewResponseController(p.to).Flush() // a client that is gone shows when there is more for it
	}
	n, err := p.ReadCloser.Read(b)
	p.left -= int64(n)
	p.some = n > 0
	return n, err
}
