package authn

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

// Lifetimes and numbers of cached results. For valid tokens the lifetime bounds how long a
// token works after its service account was deleted. For invalid ones the cache saves a
// signature check when a client repeats a forged token, and must not outlive the arrival of
// a new key by much.
const (
	goodTokenTTL  = 10 * time.Second
	badTokenTTL   = 2 * time.Second
	goodTokenSize = 4096
	badTokenSize  = 256
)

// tokenAnswer is the result for a token: a user, an error, or neither for a token of
// another kind.
type tokenAnswer struct {
	user      *resource.User
	audiences []string
	err       error
	// expires is when a good token does.
	expires time.Time
	// lasting: an error that depends on the token and the keys alone.
	lasting bool
}

// tokenCache remembers answers about tokens. Good and bad ones are kept apart:
// forged tokens cannot push out good ones. Safe for concurrent use.
type tokenCache struct {
	good, bad *lru.Cache[[sha256.Size]byte, rememberedAnswer]
}

type rememberedAnswer struct {
	tokenAnswer
	until time.Time
}

func newTokenCache() *tokenCache {
	good, _ := lru.New[[sha256.Size]byte, rememberedAnswer](goodTokenSize) // fails for sizes below 1 only
	bad, _ := lru.New[[sha256.Size]byte, rememberedAnswer](badTokenSize)
	return &tokenCache{good: good, bad: bad}
}

func (c *tokenCache) get(key [sha256.Size]byte, now time.Time) (tokenAnswer, bool) {
	for _, cache := range [...]*lru.Cache[[sha256.Size]byte, rememberedAnswer]{c.good, c.bad} {
		if answer, found := cache.Get(key); found && now.Before(answer.until) {
			return answer.tokenAnswer, true
		}
	}
	return tokenAnswer{}, false
}

func (c *tokenCache) put(key [sha256.Size]byte, answer tokenAnswer, now time.Time) {
	switch {
	case answer.user != nil:
		until := now.Add(goodTokenTTL)
		if answer.expires.Before(until) {
			until = answer.expires
		}
		c.good.Add(key, rememberedAnswer{answer, until})
	case answer.lasting:
		c.bad.Add(key, rememberedAnswer{answer, now.Add(badTokenTTL)})
	}
}

// tokenKey identifies a token and what it is wanted for. Tokens themselves are
// not kept.
func tokenKey(token string, audiences []string) [sha256.Size]byte {
	var room [2 << 10]byte // most tokens are shorter; it is not on the heap
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
type tokenMetrics struct{ hit, miss, good, bad prometheus.Counter }

// newTokenMetrics returns metrics and registers them; registry may be nil.
func newTokenMetrics(registry prometheus.Registerer) *tokenMetrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authentication_token_cache_request_total",
		Help: "Tokens of requests, by whether their result was cached: hit or miss.",
	}, []string{"status"})
	fetches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authentication_token_cache_fetch_total",
		Help: "Tokens that were verified, by result: ok or error.",
	}, []string{"status"})
	if registry != nil {
		registry.MustRegister(requests, fetches)
	}
	return &tokenMetrics{
		hit: requests.WithLabelValues("hit"), miss: requests.WithLabelValues("miss"),
		good: fetches.WithLabelValues("ok"), bad: fetches.WithLabelValues("error"),
	}
}

// checked counts a token that was not cached.
func (m *tokenMetrics) checked(err error) {
	m.miss.Inc()
	if err != nil {
		m.bad.Inc()
		return
	}
	m.good.Inc()
}
