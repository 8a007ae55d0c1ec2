package authn

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"portico/resource"
)

// Lifetimes and numbers of cached results. For valid tokens the lifetime bounds how long a
// token works after its service account was deleted. For invalid ones the cache saves a
// signature check when a client repeats a forged token, and must not outlive the arrival of
// a new key by much.
const (
	validTTL    = 10 * time.Second
	invalidTTL  = 2 * time.Second
	validSize   = 4096
	invalidSize = 256
)

// tokenResult is the result for a token: a user, an error, or neither for a token of
// another kind.
type tokenResult struct {
	user      *resource.User
	audiences []string
	err       error
	// expires is the expiry of a valid token.
	expires time.Time
	// lasting: the error depends on the token and the keys only.
	lasting bool
}

// tokenCache caches results for tokens. Valid and invalid tokens have separate caches, so
// forged tokens cannot evict valid ones. Safe for concurrent use.
type tokenCache struct {
	valid, invalid *lru.Cache[[sha256.Size]byte, cachedResult]
}

type cachedResult struct {
	tokenResult
	until time.Time
}

func newTokenCache() *tokenCache {
	valid, _ := lru.New[[sha256.Size]byte, cachedResult](validSize) // fails for sizes below 1 only
	invalid, _ := lru.New[[sha256.Size]byte, cachedResult](invalidSize)
	return &tokenCache{valid: valid, invalid: invalid}
}

func (c *tokenCache) get(key [sha256.Size]byte, now time.Time) (tokenResult, bool) {
	for _, cache := range [...]*lru.Cache[[sha256.Size]byte, cachedResult]{c.valid, c.invalid} {
		if result, found := cache.Get(key); found && now.Before(result.until) {
			return result.tokenResult, true
		}
	}
	return tokenResult{}, false
}

func (c *tokenCache) put(key [sha256.Size]byte, result tokenResult, now time.Time) {
	switch {
	case result.user != nil:
		until := now.Add(validTTL)
		if result.expires.Before(until) {
			until = result.expires
		}
		c.valid.Add(key, cachedResult{result, until})
	case result.lasting:
		c.invalid.Add(key, cachedResult{result, now.Add(invalidTTL)})
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

// tokenMetrics counts, under upstream's names, whether the results for tokens were cached
// or verified.
type tokenMetrics struct{ requests, fetches *prometheus.CounterVec }

// newTokenMetrics returns metrics and registers them; registry may be nil.
func newTokenMetrics(registry prometheus.Registerer) *tokenMetrics {
	factory := promauto.With(registry)
	m := &tokenMetrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_token_cache_request_total",
			Help: "Tokens of requests, by whether their result was cached: hit or miss.",
		}, []string{"status"}),
		fetches: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_token_cache_fetch_total",
			Help: "Tokens that were verified, by result: ok or error.",
		}, []string{"status"}),
	}
	// Series that exist from the start have a rate from the start.
	for _, status := range []string{"hit", "miss"} {
		m.requests.WithLabelValues(status)
	}
	for _, status := range []string{"ok", "error"} {
		m.fetches.WithLabelValues(status)
	}
	return m
}

// cached counts a token that was verified before.
func (m *tokenMetrics) cached() { m.requests.WithLabelValues("hit").Inc() }

// verified counts a token that was verified.
func (m *tokenMetrics) verified(err error) {
	m.requests.WithLabelValues("miss").Inc()
	status := "ok"
	if err != nil {
		status = "error"
	}
	m.fetches.WithLabelValues(status).Inc()
}
