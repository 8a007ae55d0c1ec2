package gateway

import (
	"sync"

	"portico/gateway/lastgood"
	"portico/resource"
)

// maxBound bounds the remembered objects of one kind.
const maxBound = 4096

// boundObjects remembers the uids of objects of one kind that tokens are bound to, for while the core
// server is away. Safe for concurrent use.
type boundObjects struct {
	mu   sync.Mutex
	uids map[resource.Key]string
	n    int // counts changes
}

// set remembers the uid of an object; "" removes it. Beyond maxBound an arbitrary one is
// removed.
func (b *boundObjects) set(key resource.Key, uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uids[key] == uid {
		return
	}
	b.n++
	if uid == "" {
		delete(b.uids, key)
		return
	}
	if b.uids == nil {
		b.uids = map[resource.Key]string{}
	}
	for other := range b.uids {
		if len(b.uids) < maxBound {
			break
		}
		delete(b.uids, other)
	}
	b.uids[key] = uid
}

// get returns the last known uid of an object.
func (b *boundObjects) get(key resource.Key) (uid string, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid, found = b.uids[key]
	return uid, found
}

// changes returns the number of changes by set.
func (b *boundObjects) changes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// kept returns the uids for lastGood.
func (b *boundObjects) kept() lastgood.Identities {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := lastgood.Identities{}
	for key, uid := range b.uids {
		out.Add(key.Namespace, key.Name, uid)
	}
	return out
}

// restore adds uids that are unknown.
func (b *boundObjects) restore(from lastgood.Identities) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uids == nil {
		b.uids = map[resource.Key]string{}
	}
	for namespace, names := range from {
		for name, uid := range names {
			key := resource.Key{Namespace: namespace, Name: name}
			if _, known := b.uids[key]; !known && len(b.uids) < maxBound {
				b.uids[key] = uid
			}
		}
	}
}
