package openapi

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/singleflight"

	"portico/resource/bytelru"
)

// defaultBudget of the cache, in bytes.
const defaultBudget = 64 << 20

// cache caches built documents within a number of bytes, and builds each once for concurrent
// requests.
type cache struct {
	// slots bound how many documents are built at a time: each takes many times its size, and a
	// processor. The holder of a slot waits for nothing.
	slots chan struct{}

	built    *bytelru.Cache[form, []byte]
	budget   int
	underway singleflight.Group
}

// form is a document in one encoding.
type form struct {
	doc      *document
	protobuf bool
}

// result is the result of a build; keep permits to cache it here and in clients.
type result struct {
	data []byte
	keep bool
}

func newCache(budget int) *cache {
	return &cache{built: bytelru.New[form, []byte](budget), budget: budget, slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// get returns a document from the cache, or builds it. The error is that of build, or of ctx while
// the document is built; errors are not cached.
func (c *cache) get(ctx context.Context, f form, build func() (result, error)) (result, error) {
	if data, ok := c.built.Get(f); ok {
		return result{data, true}, nil
	}
	done := c.underway.DoChan(fmt.Sprintf("%p %v", f.doc, f.protobuf), func() (any, error) { return c.build(f, build) })
	select {
	case r := <-done:
		return r.Val.(result), r.Err
	case <-ctx.Done():
		return result{}, fmt.Errorf("wait for OpenAPI document: %w", ctx.Err())
	}
}

// build runs build and caches the result. Panics become errors.
func (c *cache) build(f form, build func() (result, error)) (r result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("build OpenAPI document %s: %v", f.doc.key, p)
		}
	}()
	if r, err = build(); err != nil || !r.keep || len(r.data) > c.budget {
		return r, err
	}
	c.built.GetOrAdd(f, func() ([]byte, int) { return r.data, len(r.data) })
	if f.doc.retired.Load() {
		c.built.Remove(f)
	}
	return r, nil
}

// making runs do in a slot.
func (c *cache) making(do func()) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	do()
}

// drop removes a document that is no longer served.
func (c *cache) drop(doc *document) {
	doc.retired.Store(true)
	c.built.Remove(form{doc, false})
	c.built.Remove(form{doc, true})
}
