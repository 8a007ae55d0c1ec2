package authn

import "github.com/prometheus/client_golang/prometheus"

// tokenMetrics count how tokens were found good or bad, under upstream's names:
// from what is remembered, or by checking them.
type tokenMetrics struct{ hit, miss, good, bad prometheus.Counter }

// newTokenMetrics returns metrics and registers them; registry may be nil.
func newTokenMetrics(registry prometheus.Registerer) *tokenMetrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authentication_token_cache_request_total",
		Help: "Tokens that were shown, by whether the answer was remembered: hit or miss.",
	}, []string{"status"})
	fetches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authentication_token_cache_fetch_total",
		Help: "Tokens that were checked, by whether that ended with an error.",
	}, []string{"status"})
	if registry != nil {
		registry.MustRegister(requests, fetches)
	}
	return &tokenMetrics{
		hit: requests.WithLabelValues("hit"), miss: requests.WithLabelValues("miss"),
		good: fetches.WithLabelValues("ok"), bad: fetches.WithLabelValues("error"),
	}
}

// checked counts a token that was not remembered.
func (m *tokenMetrics) checked(err error) {
	m.miss.Inc()
	if err != nil {
		m.bad.Inc()
		return
	}
	m.good.Inc()
}
