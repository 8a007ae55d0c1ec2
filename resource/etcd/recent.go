package etcd

import (
	"bytes"
	"sync"

	"portico/resource"
)

// What a process writes comes back to it through its feed a moment later. The
// writer and the feed then share one Object: it is scanned once, its bytes are in
// memory once, and what is known of it (resource.Object.Canonical) stays known.
const (
	// recentObjects is how many writes are remembered at most, and recentBytes
	// how large the object of each may be: 4 MiB in all where no feed asks for
	// them.
	recentObjects = 256
	recentBytes   = 16 << 10
)

// recent are the latest writes that the feed has not seen. Safe for concurrent
// use.
type recent struct {
	mu    sync.Mutex
	byKey map[string]*written
	// ring holds the keys in the order of their writes; next is the oldest.
	ring [recentObjects]string
	next int
}

// written is one write; it may not have been done yet, or ever.
type written struct {
	stored []byte // as before encryption

	mu  sync.Mutex
	obj *resource.Object // that of any revision
}

// at returns the object as of the revision that the write got.
func (w *written) at(rev int64) *resource.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.obj = w.obj.WithRevision(rev)
	return w.obj
}

// begin remembers a write that is about to be done.
func (r *recent) begin(key string, obj *resource.Object, stored []byte) *written {
	w := &written{stored: stored, obj: obj}
	if len(stored) > recentBytes {
		return w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = make(map[string]*written, recentObjects)
	}
	delete(r.byKey, r.ring[r.next])
	r.ring[r.next] = key
	r.next = (r.next + 1) % recentObjects
	r.byKey[key] = w
	return w
}

// take returns the write that stored these bytes under a key, and forgets it; nil
// if it was another's, or too long ago.
func (r *recent) take(key, stored []byte) *written {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byKey[string(key)]
	if w == nil || !bytes.Equal(w.stored, stored) {
		return nil
	}
	delete(r.byKey, string(key))
	return w
}
