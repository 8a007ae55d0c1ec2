package gateway

import (
	"sync"

	"portico/gateway/lastgood"
	"portico/resource"
)

// maxSecrets bounds the Secrets remembered for tokens that are bound to one.
const maxSecrets = 4096

// boundSecrets remembers the uids of Secrets that tokens were found bound to:
// the core server is asked for them, and may be away. Safe for concurrent use.
type boundSecrets struct {
	mu   sync.Mutex
	uids map[resource.Key]string
	n    int // counts changes
}

// set remembers a Secret; "" forgets it. When there are too many, any other
// goes.
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

// get returns the uid of a Secret as it was last known.
func (b *boundSecrets) get(key resource.Key) (uid string, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid, found = b.uids[key]
	return uid, found
}

// changes counts what set has changed.
func (b *boundSecrets) changes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// kept returns what there is to keep.
func (b *boundSecrets) kept() lastgood.Identities {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := lastgood.Identities{}
	for key, uid := range b.uids {
		out.Add(key.Namespace, key.Name, uid)
	}
	return out
}

// restore adds what is not known otherwise.
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
