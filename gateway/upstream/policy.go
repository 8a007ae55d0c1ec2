package upstream

import (
	"time"

	"portico/apiservice/backend"
	"portico/gateway/upstream/balance"
)

// Policy is the policy of a Backend with every default applied.
type Policy struct {
	Balance backend.Balance
	// PanicPercent: ejections are ignored while they leave less than this share of the
	// endpoints; 0 never.
	PanicPercent int

	// ConsecutiveErrors and ConsecutiveLocalErrors eject an endpoint; 0 never.
	ConsecutiveErrors, ConsecutiveLocalErrors int
	BaseEjection, MaxEjection                 time.Duration
	MaxEjectionPercent                        int

	// SlowStart is how long the share of an endpoint grows that begins to get requests,
	// from SlowPercent of its weight, by the power of 100/Aggression; 0 disables it.
	SlowStart               time.Duration
	SlowPercent, Aggression int

	Connect, ResponseHeader, Idle time.Duration
	// MaxAge is how long a connection takes new requests; 0: as long as it lasts.
	MaxAge time.Duration

	// RetryPercent and RetriesPerSecond bound retries of requests that a server may have
	// seen; if both are 0, no request is repeated. Attempts bounds those of a request.
	RetryPercent, RetriesPerSecond, Attempts int

	// Concurrent bounds the requests in progress, and Queue those that wait; Concurrent
	// 0 is no limit. Users share both.
	Concurrent, Queue int
	// ExemptUnlimited: requests of users without limits (resource.User.Unlimited) are
	// counted and never refused.
	ExemptUnlimited bool

	Check Check
}

// Check is the active check of each endpoint.
type Check struct {
	Path                       string // "": discovery, which is fetched anyway
	Interval, Suspect, Timeout time.Duration
	Fall, Rise                 int
}

// NewPolicy returns the policy of a Backend. The spec must be valid; the zero Spec has
// the defaults.
func NewPolicy(spec *backend.Spec) Policy {
	p := spec.Policy()
	return Policy{
		Balance: p.Balance, PanicPercent: p.PanicThresholdPercent,
		ConsecutiveErrors: p.Outlier.ConsecutiveErrors, ConsecutiveLocalErrors: p.Outlier.ConsecutiveLocalErrors,
		BaseEjection: p.Outlier.BaseEjectionTime, MaxEjection: p.Outlier.MaxEjectionTime, MaxEjectionPercent: p.Outlier.MaxEjectionPercent,
		SlowStart: p.SlowStart.Window, SlowPercent: p.SlowStart.MinWeightPercent, Aggression: p.SlowStart.AggressionPercent,
		Connect: p.Timeouts.Connect, ResponseHeader: p.Timeouts.ResponseHeader, Idle: p.Timeouts.Idle, MaxAge: p.Timeouts.MaxConnectionAge,
		RetryPercent: p.Retries.BudgetPercent, RetriesPerSecond: p.Retries.MinPerSecond, Attempts: p.Retries.Attempts,
		Concurrent: p.Limits.Concurrent, Queue: p.Limits.Queue,
		Check: Check{
			Path: p.HealthCheck.Path, Interval: p.HealthCheck.Interval, Suspect: p.HealthCheck.Suspect, Timeout: p.HealthCheck.Timeout,
			Fall: p.HealthCheck.Fall, Rise: p.HealthCheck.Rise,
		},
	}
}

func (p *Policy) balancing() balance.Config {
	return balance.Config{
		Balance: p.Balance, SlowStart: balance.SlowStart{Window: p.SlowStart, MinPercent: p.SlowPercent, Aggression: p.Aggression},
	}
}

// retries reports whether requests are repeated.
func (p *Policy) retries() bool { return p.RetryPercent > 0 || p.RetriesPerSecond > 0 }
