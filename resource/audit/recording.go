package audit

import (
	"errors"
	"hash/maphash"
	"io"
	"sync"
	"sync/atomic"

	"portico/resource"
)

const (
	// maxObject bounds a body in an event, in bytes; it is the limit of a request of
	// kube-apiserver.
	maxObject = 3 << 20
	// maxStatus bounds the body of an error at level Metadata.
	maxStatus = 16 << 10
	// maxRecorded bounds all recordings together.
	maxRecorded = 64 << 20
	// maxShare bounds those of one user, so that a client that reads slowly does not take
	// the room of others. Users are hashed to shares.
	maxShare = maxRecorded / 4
	shares   = 256
)

// budget is an amount that is shared.
type budget struct {
	limit int64
	used  atomic.Int64
	whole *budget // of which this is a share; nil: none
}

// take takes n if there is that much, and nothing otherwise.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit || b.whole != nil && !b.whole.take(n) {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) {
	b.used.Add(-n)
	if b.whole != nil {
		b.whole.give(n)
	}
}

// recordings are the budgets of an Auditor's recordings. Safe for concurrent use.
type recordings struct {
	all    budget
	shares [shares]budget
	seed   maphash.Seed
}

func newRecordings() *recordings {
	r := &recordings{all: budget{limit: maxRecorded}, seed: maphash.MakeSeed()}
	for i := range r.shares {
		r.shares[i].limit, r.shares[i].whole = maxShare, &r.all
	}
	return r
}

// of returns the share of a user; nil is an unknown user.
func (r *recordings) of(user *resource.User) *budget {
	if user == nil {
		user = &resource.User{}
	}
	return &r.shares[maphash.String(r.seed, user.Name)%shares]
}

// recording keeps a body while it is read or written. Safe for concurrent use: a body may
// be read after its request has ended.
type recording struct {
	budget *budget
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
	case len(c.data)+len(p) > c.limit, !c.budget.take(int64(len(p))):
		c.lose()
	default:
		c.data = append(c.data, p...)
	}
}

// lose drops the recording.
func (c *recording) lose() {
	c.budget.give(int64(len(c.data)))
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
	recording recording
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
