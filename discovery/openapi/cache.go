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

// errStopped is what is known of a document whose building has not ended.
var errStopped = errors.New("building the OpenAPI document stopped midway")

// cache keeps documents that are built, within a number of bytes, and has each
// built once for all who ask for it at the same time. It is the named cache
// "openapi".
type cache struct {
	// slots bound how many documents are made at a time: each takes many times its
	// size meanwhile, and a processor. Nobody who holds one waits for anything.
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

// building is a document that is being built. Its results are set before done
// is closed.
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

// get returns a document, built if it is not kept. build also says whether its
// result may be kept and shown as the document for good. An error is that of
// build, or that of ctx while waiting for another's build; errors are not kept.
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

// build runs build. Should that panic, those who wait get the error that b was
// made with.
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

// making runs the part of building that takes a slot.
func (c *cache) making(do func()) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	do()
}

// peek returns a document if it is kept.
func (c *cache) peek(f form) ([]byte, bool) { return c.built.Get(f) }

// drop forgets a document that is described no more.
func (c *cache) drop(doc *document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doc.retired = true
	c.built.Remove(form{doc, false})
	c.built.Remove(form{doc, true})
}
