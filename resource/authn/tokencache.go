package authn

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"portico/resource"
)

// Lifetimes and numbers of cached results. Of a valid token the lifetime bounds how long it works
// after a change that is not reported (ServiceAccountTokens.Changed); unfollowedTTL applies while
// changes of an object that it depends on are not reported at all. For invalid ones the cache
// saves a signature check when a client repeats a forged token, and must not outlive the arrival
// of a new key by much.
const (
	validTTL      = 10 * time.Second
	unfollowedTTL = time.Second

	invalidTTL  = 2 * time.Second
	validSize   = 4096
	invalidSize = 256
)

// tokenResult is the result for a token: a user, an error, or neither for a token of
// another kind.
type tokenResult struct {
	user      *resource.User
	audiences []string
	notes     *Notes // of a valid token; nil: none
	err       error
	// expires is the expiry of a valid token.
	expires time.Time
	// lasting: the error depends on the token and the keys only.
	lasting bool
	// lookup has the objects that the result depends on; nil: none.
	lookup *lookup
}

// Object is an object that the validity of a token depends on: a ServiceAccount, Pod or Secret, or
// a Node, which has no namespace.
type Object struct{ Kind, Namespace, Name string }

// lookup is one verification of a token by the states of objects.
type lookup struct {
	objects []Object
	// stale is set when one of the objects changed after the lookup began.
	stale atomic.Bool
}

// tokenCache caches results for tokens. Valid and invalid tokens have separate caches, so
// forged tokens cannot evict valid ones. Safe for concurrent use.
type tokenCache struct {
	valid, invalid *lru.Cache[[sha256.Size]byte, cachedResult]

	mu       sync.Mutex
	lookups  map[Object]map[*lookup]bool // those of cached results, and those that run
	followed map[string]bool             // the kinds whose changes are reported
}

type cachedResult struct {
	tokenResult
	until time.Time
}

func newTokenCache() *tokenCache {
	c := &tokenCache{lookups: map[Object]map[*lookup]bool{}, followed: map[string]bool{}}
	// These fail for sizes below 1 only.
	c.valid, _ = lru.NewWithEvict(validSize, func(_ [sha256.Size]byte, r cachedResult) { c.end(r.lookup) })
	c.invalid, _ = lru.New[[sha256.Size]byte, cachedResult](invalidSize)
	return c
}

func (c *tokenCache) get(key [sha256.Size]byte, now time.Time) (tokenResult, bool) {
	for _, cache := range [...]*lru.Cache[[sha256.Size]byte, cachedResult]{c.valid, c.invalid} {
		if result, found := cache.Get(key); found && now.Before(result.until) && (result.lookup == nil || !result.lookup.stale.Load()) {
			return result.tokenResult, true
		}
	}
	return tokenResult{}, false
}

// put caches a result, if it can be, or ends its lookup.
func (c *tokenCache) put(key [sha256.Size]byte, result tokenResult, now time.Time) {
	switch {
	case result.user != nil:
		until := now.Add(c.lifetime(result.lookup))
		if result.expires.Before(until) {
			until = result.expires
		}
		c.valid.Remove(key) // ends the lookup of an older result
		c.valid.Add(key, cachedResult{result, until})
		return
	case result.lasting:
		c.invalid.Add(key, cachedResult{result, now.Add(invalidTTL)})
	}
	c.end(result.lookup)
}

// lifetime returns how long a valid result is cached.
func (c *tokenCache) lifetime(l *lookup) time.Duration {
	if l == nil {
		return validTTL
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range l.objects {
		if !c.followed[o.Kind] {
			return unfollowedTTL
		}
	}
	return validTTL
}

// begin begins a lookup of objects. It is called before the first is read, so that no change
// is missed.
func (c *tokenCache) begin(objects []Object) *lookup {
	l := &lookup{objects: objects}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range objects {
		if c.lookups[o] == nil {
			c.lookups[o] = map[*lookup]bool{}
		}
		c.lookups[o][l] = true
	}
	return l
}

// end removes a lookup whose result is not cached.
func (c *tokenCache) end(l *lookup) {
	if l == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range l.objects {
		if delete(c.lookups[o], l); len(c.lookups[o]) == 0 {
			delete(c.lookups, o)
		}
	}
}

// changed makes the results stale that depend on an object.
func (c *tokenCache) changed(o Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.lookups[o] {
		l.stale.Store(true)
	}
}

// follow sets whether changes of objects of a kind are reported, and makes the results stale that
// depend on one: changes may have been missed.
func (c *tokenCache) follow(kind string, reported bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followed[kind] = reported
	for o, lookups := range c.lookups {
		if o.Kind != kind {
			continue
		}
		for l := range lookups {
			l.stale.Store(true)
		}
	}
}

// tokenKey identifies a token and the wanted audiences. The cache does not hold tokens.
func tokenKey(token string, audiences []string) [sha256.Size]byte {
	var room [2 << 10]byte // on the stack; most tokens are shorter
	text := room[:0]
	write := func(s string) {
		text = binary.BigEndian.AppendUint64(text, uint64(len(s)))
		text = append(text, s...)
	}
	write(token)
	for _, audience := range audiences {
		write(audience)
	}
	return sha256.Sum256(text)
}
