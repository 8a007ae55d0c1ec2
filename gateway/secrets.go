package gateway

import (
	"sync"

	"portico/gateway/lastgood"
	"portico/resource"
)

// maxSecrets bounds the remembered Secrets.
const maxSecrets = 4096

// boundSecrets remembers the uids of Secrets that tokens are bound to, for while the core
// server is away. Safe for concurrent use.
type boundSecrets struct {
	mu   sync.Mutex
	uids map[resource.Key]string
	n    int // counts changes
}

// set remembers the uid of a Secret; "" removes it. Beyond maxSecrets an arbitrary one is
// removed.
func (b *boundSecrets) set(key resource.Key, uid string) {
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
		if len(b.uids) < maxSecrets {
			break
		}
		delete(b.uids, other)
	}
	b.uids[key] = uid
}

// get returns the last known uid of a Secret.
func (b *boundSecrets) get(key resource.Key) (uid string, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid, found = b.uids[key]
	return uid, found
}

// changes returns the number of changes by set.
func (b *boundSecrets) changes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// kept returns the uids for lastGood.
func (b *boundSecrets) kept() lastgood.Identities {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := lastgood.Identities{}
	for key, uid := range b.uids {
		out.Add(key.Namespace, key.Name, uid)
	}
	return out
}

// restore adds uids that are unknown.
func (b *boundSecrets) restore(from lastgood.Identities) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uids == nil {
		b.uids = map[resource.Key]string{}
	}
	for namespace, names := range from {
		for name, uid := range names {
			key := resource.Key{Namespace: namespace, Name: name}
			if _, known := b.uids[key]; !known && len(b.uids) < maxSecrets {
				b.uids[key] = uid
			}
		}
	}
}
