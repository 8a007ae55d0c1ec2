package upstream

import (
	"time"

	"portico/apiservice/backend"
)

// Policy is how requests are spread over the endpoints of a server and what is
// done about those that fail, every default resolved.
type Policy struct {
	Balance backend.Balance
	// PanicPercent: while fewer of the endpoints than this share get requests,
	// ejections are ignored; 0 never.
	PanicPercent int

	// ConsecutiveErrors and ConsecutiveLocalErrors eject an endpoint; 0 never.
	ConsecutiveErrors, ConsecutiveLocalErrors int
	BaseEjection, MaxEjection                 time.Duration
	MaxEjectionPercent                        int

	// SlowStart is how long the share of an endpoint grows that came back, from
	// SlowPercent of its weight, by the power of 100/Aggression; 0 not at all.
	SlowStart               time.Duration
	SlowPercent, Aggression int

	Connect, ResponseHeader, Idle time.Duration
	// MaxAge is how long a connection takes new requests; 0: as long as it lasts.
	MaxAge time.Duration

	// RetryPercent and RetriesPerSecond bound retries of what a server may have
	// seen; with both 0 nothing is retried at all.
	RetryPercent, RetriesPerSecond, Attempts int

	// Concurrent requests, and how many more wait; Concurrent 0 is no limit. Users
	// share both.
	Concurrent, Queue int
	// ExemptUnlimited has requests of users without limits (resource.User.Unlimited)
	// counted and never refused.
	ExemptUnlimited bool

	Check Check
}

// Check is the active check of each endpoint.
type Check struct {
	Path                       string // "": what else is asked for anyway
	Interval, Suspect, Timeout time.Duration
	Fall, Rise                 int
}

// NewPolicy resolves what a Backend says, and what it leaves out. The spec must
// be valid; the zero Spec is that of a server which nobody said anything about.
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

// retries reports whether anything is retried.
func (p *Policy) retries() bool { return p.RetryPercent > 0 || p.RetriesPerSecond > 0 }
