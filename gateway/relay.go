package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

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
	control *http.ResponseController
	buffers *buffers
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
	if err := r.control.Flush(); err != nil {
		return err
	}
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
		if err := r.control.Flush(); err != nil {
			return err
		}
	}
	return err
}

// Close closes the body.
func (r *relay) Close() error { return r.body.Close() }

// relayWriter is the writer of a response whose body a relay sends. The relay
// flushes; the proxy, which would do so from another goroutine, must not.
type relayWriter struct{ http.ResponseWriter }

// FlushError is what http.ResponseController calls.
func (relayWriter) FlushError() error { return nil }

// Unwrap lets http.ResponseController reach the server's own writer for all
// else.
func (w relayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
