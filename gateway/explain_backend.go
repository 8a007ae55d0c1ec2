package gateway

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"portico/apiservice/backend"
	"portico/apiservice/explain"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource"
)

// explainBackend describes the state of the server of a route, and the endpoint that the
// request would go to.
func explainBackend(rt *proxy.Route, r *http.Request) *explain.Backend {
	up := rt.Upstream
	status, policy := up.Status(), up.Policy()
	out := &explain.Backend{
		Name: rt.Backend, Policy: explainPolicy(&policy, r), InFlight: int(status.Active), Queued: int(status.Waiting),
		Endpoints: make([]explain.Endpoint, 0, len(status.Endpoints)),
	}
	balance, candidates, err := up.Explain(r)
	shares := make(map[string]float64, len(candidates))
	for _, c := range candidates {
		shares[c.URL] = c.Share
	}
	for _, e := range status.Endpoints {
		share, pickable := shares[e.URL]
		out.Endpoints = append(out.Endpoints, explain.Endpoint{
			URL: e.URL, State: e.State, Since: since(e.Since), Weight: e.Weight, InFlight: int(e.Active), LastError: e.LastError, LastErrorTime: since(e.LastErrorAt),
			Pickable: pickable, SharePercent: share, WeightPercent: growing(e.Grown), Drains: drainOf(e.Weight, len(candidates) > 0),
		})
		if pickable && e.State == backend.EndpointEjected {
			out.Panic = true
		}
	}
	if err != nil {
		out.PickReason = err.Error()
		return out
	}
	out.Pick, out.PickReason = likeliest(out.Endpoints, balance)
	return out
}

// growing returns the percentage of its weight that an endpoint has during slow start; 0:
// all of it.
func growing(part float64) float64 {
	if part >= 1 {
		return 0
	}
	return math.Round(part * 100)
}

// drainOf describes the requests in flight to an endpoint of weight 0; elsewhere:
// other endpoints get requests.
func drainOf(weight int, elsewhere bool) string {
	switch {
	case weight > 0:
		return ""
	case elsewhere:
		return "its weight is 0: it gets no new requests, requests in flight finish, and its watches end within 30s and continue elsewhere"
	}
	return "its weight is 0: it gets no new requests, and requests in flight finish; its watches remain, since no other endpoint gets requests"
}

func since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

// likeliest returns the endpoint that is chosen next, or most likely, and why.
func likeliest(endpoints []explain.Endpoint, balance backend.Balance) (url, why string) {
	var best *explain.Endpoint
	n := 0
	for i := range endpoints {
		e := &endpoints[i]
		if !e.Pickable {
			continue
		}
		n++
		if best == nil || e.InFlight*best.Weight < best.InFlight*e.Weight {
			best = e
		}
	}
	switch {
	case best == nil:
		return "", "no endpoint gets requests"
	case n == 1 && balance == backend.ConsistentHash && len(endpoints) > 1:
		return best.URL, "the user's requests go to it while it is healthy (ConsistentHash)"
	case len(endpoints) == 1:
		return best.URL, "it is the only endpoint"
	case n == 1:
		return best.URL, fmt.Sprintf("it is the only one of %d endpoints that gets requests", len(endpoints))
	case balance == backend.RoundRobin:
		return best.URL, fmt.Sprintf("one of %d by weight (RoundRobin); any of them may be next", n)
	case balance == backend.ConsistentHash:
		return best.URL, fmt.Sprintf("one of %d is chosen by the user's name (ConsistentHash)", n)
	}
	return best.URL, fmt.Sprintf("it has the fewest requests in flight for its weight, of %d; each request goes to the better of two random ones (LeastRequest)", n)
}

// explainPolicy describes the policy of requests to a server.
func explainPolicy(p *upstream.Policy, r *http.Request) explain.Policy {
	out := explain.Policy{
		Balance: p.Balance, Connect: p.Timeouts.Connect.String(), ResponseHeader: p.Timeouts.ResponseHeader.String(), Idle: p.Timeouts.Idle.String(),
		Retries: retriesOf(p, r), Attempts: p.Retries.Attempts, Concurrent: p.Limits.Concurrent, Queue: p.Limits.Queue,
		HealthCheck: checkOf(&p.HealthCheck), SlowStart: slowStartOf(p),
	}
	if p.Timeouts.MaxConnectionAge > 0 {
		out.MaxConnectionAge = p.Timeouts.MaxConnectionAge.String()
	}
	if resource.ActionFrom(r.Context()).LongRunning() {
		out.ResponseHeader = ""
	}
	return out
}

// retriesOf describes whether a request would be retried.
func retriesOf(p *upstream.Policy, r *http.Request) string {
	if p.Retries.BudgetPercent == 0 && p.Retries.MinPerSecond == 0 {
		return "never"
	}
	when := []string{"if nothing of it was sent"}
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		when = append(when, "if the connection broke before the response", "if the response was 502, 503, 504, or 429 with Retry-After")
	}
	return fmt.Sprintf("%s; up to %d attempts, and retries up to %d%% of the requests of ten seconds or %d a second",
		strings.Join(when, ", "), p.Retries.Attempts, p.Retries.BudgetPercent, p.Retries.MinPerSecond)
}

// slowStartOf describes how the share of a returning endpoint grows.
func slowStartOf(p *upstream.Policy) string {
	if p.SlowStart.Window <= 0 || p.Balance == backend.ConsistentHash {
		return ""
	}
	return fmt.Sprintf("from %d%% of its weight to all of it in %v, aggression %d%%", p.SlowStart.MinWeightPercent, p.SlowStart.Window, p.SlowStart.AggressionPercent)
}

// checkOf describes the health checks of endpoints.
func checkOf(c *backend.HealthPolicy) string {
	path := c.Path
	if path == "" {
		path = "discovery"
	}
	return fmt.Sprintf("%s every %v, every %v while suspect, timeout %v, fall %d, rise %d", path, c.Interval, c.Suspect, c.Timeout, c.Fall, c.Rise)
}
