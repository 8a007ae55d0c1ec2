// Package bytelru has a cache that is bounded in bytes: when its values take more, the least
// recently used ones are evicted.
//
// Runs in: gateway, core, crd.
package bytelru

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache keeps values by key. Safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[K, *entry[V]]
	bytes int
	limit int
}

type entry[V any] struct {
	value V
	size  int
}

// New returns a cache of up to limit bytes.
func New[K comparable, V any](limit int) *Cache[K, V] {
	c := &Cache[K, V]{limit: limit}
	// The number of values is bounded by their sizes. NewLRU fails only for a size below
	// 1.
	c.lru, _ = simplelru.NewLRU(math.MaxInt, func(_ K, e *entry[V]) { c.bytes -= e.size })
	return c
}

// Get returns the value of key, which is then the most recently used.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.lru.Get(key)
	if ok {
		value = e.value
	}
	return value, ok
}

// GetOrAdd returns the value of key, which it sets to the result of make if there is
// none. make must be quick: the cache is locked. size is the number of bytes that the
// value takes; Resize changes it.
func (c *Cache[K, V]) GetOrAdd(key K, make func() (value V, size int)) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.lru.Get(key)
	if !ok {
		e = &entry[V]{}
		e.value, e.size = make()
		c.lru.Add(key, e)
		c.bytes += e.size
		c.evict()
	}
	return e.value
}

// Resize sets the size of the value of key to size bytes if there is one that is(value),
// and reports whether there is.
func (c *Cache[K, V]) Resize(key K, is func(value V) bool, size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.lru.Peek(key)
	if !ok || !is(e.value) {
		return false
	}
	c.bytes += size - e.size
	e.size = size
	c.evict()
	return true
}

// evict removes the least recently used values while there are too many bytes. The most
// recently used value stays, whatever its size.
func (c *Cache[K, V]) evict() {
	for c.bytes > c.limit && c.lru.Len() > 1 {
		c.lru.RemoveOldest()
	}
}

// Remove removes the value of key.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Remove(key)
}

// Size returns the number of values and the bytes that they take.
func (c *Cache[K, V]) Size() (values, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Len(), c.bytes
}
