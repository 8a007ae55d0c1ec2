package audit

import (
	"errors"
	"hash/maphash"
	"io"
	"sync"

	"portico/resource"
)

const (
	// maxObject is how large a body may be, in bytes, to get into an event: what
	// kube-apiserver takes for a request.
	maxObject = 3 << 20
	// maxStatus is the same for the body of an error at level Metadata.
	maxStatus = 16 << 10
	// maxRecorded is how much the recordings of all requests may hold together.
	maxRecorded = 64 << 20
	// maxShare is how much those of one user may hold of that: who reads answers
	// slowly keeps nobody else's out of their events. Users have one of so many
	// shares, by chance.
	maxShare = maxRecorded / 4
	shares   = 256
)

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

// of is the share of a user; nil is nobody that is known.
func (r *recordings) of(user *resource.User) *budget {
	if user == nil {
		user = &resource.User{}
	}
	return &r.shares[maphash.String(r.seed, user.Name)%shares]
}

// recording keeps what passes. Safe for concurrent use: a body may be read on
// when nobody waits for its answer any more.
type recording struct {
	budget *budget
	limit  int

	mu   sync.Mutex
	data []byte
	// lost: there was more than fits. ended: nothing is added any more.
	lost, ended bool
}

// write adds what has passed.
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

// lose gives up what was kept.
func (c *recording) lose() {
	c.budget.give(int64(len(c.data)))
	c.lost, c.data = true, nil
}

// end ends the recording and returns it; lost says that it is not all there was.
// What it holds is held until free.
func (c *recording) end() (data []byte, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.data, c.lost
}

// free has the recording hold nothing any more.
func (c *recording) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lost {
		c.lose()
	}
}

// recordedBody is the body of a request that is recorded as it is read. It is
// read as it would be without: by whom, when, and how far.
type recordedBody struct {
	io.ReadCloser
	recording recording
	// length is what the client says there is; -1: it does not say.
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

// end ends the recording. A body that was not read to its end is nil: it was not
// what the request was about.
func (b *recordedBody) end() (data []byte, lost bool) {
	data, lost = b.recording.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole || lost || int64(len(data)) == b.length {
		return data, lost
	}
	return nil, false
}
