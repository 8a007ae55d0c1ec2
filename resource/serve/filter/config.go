package filter

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/serve/inflight"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

// Defaults of Config.
const (
	DefaultRequestTimeout      = 60 * time.Second
	DefaultMaxInFlight         = 400
	DefaultMaxMutatingInFlight = 200
)

// MaxGoawayChance keeps clients from reconnecting every few requests.
const MaxGoawayChance = 0.02

// Config of a Chain.
type Config struct {
	// Handler gets the requests that passed the filters. Required.
	Handler http.Handler
	// Authenticator finds the user of a request. Required.
	Authenticator authn.Authenticator
	// Refuse is called for every request before authentication; its error is the
	// response, as a Status. It may change the request's header. nil: none is refused.
	Refuse func(r *http.Request) error
	// IdentityHeaders are removed from requests in addition to X-Remote-*: those that
	// Authenticator reads from a front proxy with other header names.
	IdentityHeaders authn.HeaderNames
	// Authorizer decides about every request; nil: authenticated requests are allowed.
	Authorizer authz.Authorizer
	// Impersonation wraps the filters after authentication; nil: none.
	Impersonation func(next http.Handler) http.Handler
	// Complete reports whether all paths are installed; until then a request for an
	// unknown path is answered 503. nil: they are.
	Complete func() bool
	// LongRunning reports whether a request has no deadline although its Action says
	// that it has one. It is called before authentication. nil: none.
	LongRunning func(r *http.Request, a *resource.Action) bool
	// Metrics counts the requests. Default metrics.New().
	Metrics *metrics.Metrics
	// AccessLog records every request that has ended; nil: none does.
	AccessLog RequestLog
	// Audit audits requests; nil: none are.
	Audit *audit.Auditor
	// ReturnAnnotations adds the annotations of audit events to responses to gateways that ask for
	// them (audit.HeaderAnnotations).
	ReturnAnnotations bool
	// Tracer records spans; nil: trace headers are passed on unchanged.
	Tracer *tracing.Tracer
	// TrustsTrace reports whether the user may request sampling. nil: every user may,
	// for servers behind servers that have decided it.
	TrustsTrace func(user *resource.User) bool
	// Logger, nil: slog.Default().
	Logger *slog.Logger

	// RequestTimeout bounds requests that are not long-running. Default
	// DefaultRequestTimeout.
	RequestTimeout time.Duration
	// Ahead makes deadlines earlier, by at most a tenth of their time. It is for a
	// server behind one with the same deadline, which would miss the response. Default 0.
	Ahead time.Duration
	// FlowControl decides when requests run, in place of MaxInFlight and MaxMutatingInFlight,
	// which decide if it is nil. It needs SentOn.
	FlowControl FlowControl
	// SentOn reports whether a request is sent to a server with limits of its own: FlowControl
	// is not asked about it. Before a request takes a slot in flight its body is read, and the handler gets it from
	// memory; the body of a request that is sent on only if it is small (body.Small). Long-running requests are
	// excepted. If SentOn is nil, no body is read before its handler runs.
	SentOn func(a *resource.Action) bool
	// MaxInFlight and MaxMutatingInFlight bound the reads and writes in flight; one user
	// gets at most two thirds. Defaults DefaultMaxInFlight and
	// DefaultMaxMutatingInFlight; below 0: no bound.
	MaxInFlight, MaxMutatingInFlight int
	// MaxLongRunning and MaxLongRunningPerUser bound the long-running requests, in all
	// and of one user. A user gets at most two thirds of all; 0: no bound. Streams of
	// discovery have a bound of their own.
	MaxLongRunning, MaxLongRunningPerUser int
	// Connections are the limits of network clients' connections. Default
	// those of inflight.Bounds.
	Connections inflight.ConnectionLimits
	// Browser is what responses tell browsers. Default: nothing.
	Browser Browser
	// ManyUsers: clients are gateways. A connection carries the requests of many users, so
	// connections with a user are not limited, and the origins of pages have been checked.
	ManyUsers bool
	// GoawayChance is the probability, at most 0.02, that a request ends its HTTP/2
	// connection after the requests in flight on it, so that the client reconnects and
	// a load balancer chooses again. Default 0.
	GoawayChance float64
}

func (cfg *Config) validate() error {
	switch {
	case cfg.Handler == nil:
		return errors.New("make filters: no handler")
	case cfg.Authenticator == nil:
		return errors.New("make filters: no authenticator")
	case cfg.FlowControl != nil && cfg.SentOn == nil:
		return errors.New("make filters: flow control without SentOn")
	case cfg.GoawayChance < 0 || cfg.GoawayChance > MaxGoawayChance:
		return fmt.Errorf("make filters: the chance of GOAWAY is %v and must be between 0 and %v", cfg.GoawayChance, MaxGoawayChance)
	}
	if err := cfg.Browser.Check(); err != nil {
		return fmt.Errorf("make filters: %w", err)
	}
	return nil
}

// complete fills in the defaults.
func (cfg *Config) complete() {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.New()
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.Connections.Users == nil {
		cfg.Connections, _ = inflight.Bounds{}.Limits() // the defaults are valid
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	if cfg.MaxMutatingInFlight == 0 {
		cfg.MaxMutatingInFlight = DefaultMaxMutatingInFlight
	}
}
