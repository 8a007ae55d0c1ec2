package openapi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"portico/resource/bytelru"
)

// defaultBudget of the cache, in bytes.
const defaultBudget = 64 << 20

// errStopped is the error of a document whose build panicked.
var errStopped = errors.New("building the OpenAPI document stopped midway")

// cache caches built documents within a number of bytes, and builds each once for concurrent
// requests. It is the named cache "openapi".
type cache struct {
	// slots bound how many documents are built at a time: each takes many times its size, and a
	// processor. The holder of a slot waits for nothing.
	slots chan struct{}

	built  *bytelru.Cache[form, []byte]
	budget int

	mu       sync.Mutex
	underway map[form]*building
}

// form is a document in one encoding.
type form struct {
	doc      *document
	protobuf bool
}

// building is a build in progress. Its results are set before done is closed.
type building struct {
	done chan struct{}
	data []byte
	keep bool
	err  error
}

func newCache(budget int) *cache {
	return &cache{
		built: bytelru.New[form, []byte](budget), budget: budget,
		slots: make(chan struct{}, runtime.GOMAXPROCS(0)), underway: map[form]*building{},
	}
}

// get returns a document from the cache, or builds it; build also returns whether its result may be
// cached here and by clients. The error is that of build, or of ctx while another request builds;
// errors are not cached.
func (c *cache) get(ctx context.Context, f form, build func() (data []byte, keep bool, err error)) (data []byte, keep bool, err error) {
	c.mu.Lock()
	if data, ok := c.built.Get(f); ok {
		c.mu.Unlock()
		return data, true, nil
	}
	b, waiting := c.underway[f]
	if !waiting {
		b = &building{done: make(chan struct{}), err: errStopped}
		c.underway[f] = b
	}
	c.mu.Unlock()
	if !waiting {
		c.build(f, b, build)
	}
	select {
	case <-b.done:
		return b.data, b.keep, b.err
	case <-ctx.Done():
		return nil, false, fmt.Errorf("wait for OpenAPI document: %w", ctx.Err())
	}
}

// build runs build. If that panics, waiting requests get errStopped.
func (c *cache) build(f form, b *building, build func() ([]byte, bool, error)) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.underway, f)
		if b.err == nil && b.keep && !f.doc.retired && len(b.data) <= c.budget {
			c.built.GetOrAdd(f, func() ([]byte, int) { return b.data, len(b.data) })
		}
		close(b.done)
	}()
	b.data, b.keep, b.err = build()
}

// making runs do in a slot.
func (c *cache) making(do func()) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	do()
}

// peek returns a document if it is cached.
func (c *cache) peek(f form) ([]byte, bool) { return c.built.Get(f) }

// drop removes a document that is no longer served.
func (c *cache) drop(doc *document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doc.retired = true
	c.built.Remove(form{doc, false})
	c.built.Remove(form{doc, true})
}
