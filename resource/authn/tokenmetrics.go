package authn

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// tokenMetrics counts, under upstream's names, whether the results for tokens were cached
// or verified, and the uses of tokens that should be replaced. As upstream's, the latter count
// verifications: a cached result counts once.
type tokenMetrics struct {
	requests, fetches                            *prometheus.CounterVec
	legacy, manual, automatic, invalidatedLegacy prometheus.Counter
	stale, projected                             prometheus.Counter
}

// newTokenMetrics returns metrics and registers them; registry may be nil.
func newTokenMetrics(registry prometheus.Registerer) *tokenMetrics {
	factory := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Subsystem: "serviceaccount", Name: name, Help: help})
	}
	m := &tokenMetrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_token_cache_request_total",
			Help: "Tokens of requests, by whether their result was cached: hit or miss.",
		}, []string{"status"}),
		fetches: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_token_cache_fetch_total",
			Help: "Tokens that were verified, by result: ok or error.",
		}, []string{"status"}),
		legacy:            counter("legacy_tokens_total", "Service-account tokens without audiences, those of Secrets, that were used."),
		manual:            counter("legacy_manual_token_uses_total", "Tokens of Secrets that were created by hand, as they were used."),
		automatic:         counter("legacy_auto_token_uses_total", "Tokens of Secrets that service accounts list, as they were used."),
		invalidatedLegacy: counter("invalid_legacy_auto_token_uses_total", "Tokens of Secrets that are marked invalid, as they were used."),
		stale:             counter("stale_tokens_total", "Tokens of extended lifetime that clients should have replaced, as they were used."),
		projected:         counter("valid_tokens_total", "Tokens of extended lifetime that need no replacement yet, as they were used."),
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
