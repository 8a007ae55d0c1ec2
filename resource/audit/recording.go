package audit

import (
	"errors"
	"io"
	"sync"

	"portico/resource/fairshare"
)

const (
	// maxObject bounds a body in an event, in bytes; it is the limit of a request of
	// kube-apiserver.
	maxObject = 3 << 20
	// maxStatus bounds the body of an error at level Metadata.
	maxStatus = 16 << 10
	// maxRecorded bounds all recordings together. Users share it, so that a client that
	// reads slowly does not take the room of others.
	maxRecorded = 64 << 20
)

// recording keeps a body while it is read or written. Safe for concurrent use: a body may
// be read after its request has ended.
type recording struct {
	memory *fairshare.Limit // in bytes
	user   string           // the memory is of the share of this user; "" is unknown
	limit  int

	mu   sync.Mutex
	data []byte
	// lost: the body exceeded a limit. ended: nothing is added any more.
	lost, ended bool
}

// write adds a piece of the body.
func (c *recording) write(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended || c.lost || len(p) == 0:
	case len(c.data)+len(p) > c.limit, !c.memory.TakeN(c.user, len(p)):
		c.lose()
	default:
		c.data = append(c.data, p...)
	}
}

// lose drops the recording.
func (c *recording) lose() {
	c.memory.ReleaseN(c.user, len(c.data))
	c.lost, c.data = true, nil
}

// end ends the recording and returns it; lost reports that it is incomplete. Its memory
// counts until free.
func (c *recording) end() (data []byte, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.data, c.lost
}

// free releases the memory.
func (c *recording) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lost {
		c.lose()
	}
}

// recordedBody records the body of a request as it is read.
type recordedBody struct {
	io.ReadCloser
	recording *recording
	// length is the Content-Length; -1: unknown.
	length int64

	mu    sync.Mutex
	whole bool
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.recording.write(p[:n])
	if errors.Is(err, io.EOF) {
		b.mu.Lock()
		b.whole = true
		b.mu.Unlock()
	}
	return n, err
}

// end ends the recording. A body that was not read to its end is nil: the server did not
// use it.
func (b *recordedBody) end() (data []byte, lost bool) {
	data, lost = b.recording.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole || lost || int64(len(data)) == b.length {
		return data, lost
	}
	return nil, false
}
