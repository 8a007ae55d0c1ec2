package upstream

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

	Connect, ResponseHeader, Idle time.Duration

	// RetryPercent and RetriesPerSecond bound retries of what a server may have
	// seen; with both 0 nothing is retried at all.
	RetryPercent, RetriesPerSecond, Attempts int

	// Concurrent requests, and how many more wait; Concurrent 0 is no limit.
	Concurrent, Queue int

	Check Check
}

// Check is the active check of each endpoint.
type Check struct {
	Path                       string // "": what else is asked for anyway
	Interval, Suspect, Timeout time.Duration
	Fall, Rise                 int
}

// suspectShare of the interval of its check passes between two checks of an
// endpoint that is suspect.
const suspectShare = 10

// NewPolicy resolves what a Backend says, and what it leaves out. The spec must
// be valid; the zero Spec is that of a server which nobody said anything about.
func NewPolicy(spec *backend.Spec) Policy {
	p := Policy{
		Balance: backend.LeastRequest, PanicPercent: number(spec.PanicThresholdPercent, 50),
	}
	if spec.Balance != "" {
		p.Balance = spec.Balance
	}
	o := or(spec.OutlierDetection)
	p.ConsecutiveErrors, p.ConsecutiveLocalErrors = number(o.ConsecutiveErrors, 5), number(o.ConsecutiveLocalErrors, 3)
	p.BaseEjection, p.MaxEjection = duration(o.BaseEjectionTime, 30*time.Second), duration(o.MaxEjectionTime, 300*time.Second)
	p.MaxEjectionPercent = number(o.MaxEjectionPercent, 50)
	t := or(spec.Timeouts)
	p.Connect, p.ResponseHeader = duration(t.Connect, time.Second), duration(t.ResponseHeader, 60*time.Second)
	p.Idle = duration(t.Idle, 90*time.Second)
	r := or(spec.Retries)
	p.RetryPercent, p.RetriesPerSecond, p.Attempts = number(r.BudgetPercent, 20), number(r.MinPerSecond, 3), positive(r.Attempts, 3)
	l := or(spec.Limits)
	p.Concurrent, p.Queue = number(l.Concurrent, 1024), number(l.Queue, 256)
	c := or(spec.HealthCheck)
	p.Check = Check{
		Path: c.Path, Interval: duration(c.Interval, 5*time.Second), Timeout: duration(c.Timeout, time.Second),
		Fall: positive(c.Fall, 3), Rise: positive(c.Rise, 2),
	}
	p.Check.Suspect = p.Check.Interval / suspectShare
	return p
}

// retries reports whether anything is retried.
func (p *Policy) retries() bool { return p.RetryPercent > 0 || p.RetriesPerSecond > 0 }

func or[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

func number(p *int32, otherwise int) int {
	if p == nil {
		return otherwise
	}
	return int(*p)
}

func positive(n int32, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return int(n)
}

func duration(p *metav1.Duration, otherwise time.Duration) time.Duration {
	if p == nil || p.Duration <= 0 {
		return otherwise
	}
	return p.Duration
}
