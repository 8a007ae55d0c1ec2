// Package filter is the chain of filters that every request passes: identification,
// metrics, shutdown, deadlines, authentication, audit, limits and authorization.
//
// The filters are plain net/http. chain.go lists them in their order, which clients can
// observe; each has a small file.
//
// Decisions:
//
//   - A requestState per request is the outermost response writer and the context of the
//     filters below. Headers that every response has (Audit-ID, Cache-Control) do not
//     depend on what a handler does to its headers.
//   - Deadlines need no second goroutine. The handler runs on the goroutine of its
//     connection; a timer writes the 504 if the handler has written nothing, and cuts off
//     its reads and writes. Responses are not buffered, and a request is in flight
//     while its handler runs.
//   - Bodies are limited where they are read (resource/rest/body): a limit on the connection
//     would close it instead of answering with a Status, and would apply to streams.
//
// Runs in: gateway, core, crd.
package filter

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"portico/resource"
	"portico/resource/serve/inflight"
	"portico/resource/serve/metrics"
)

// Chain is a handler behind all filters. Safe for concurrent use.
type Chain struct {
	cfg         Config
	log         *slog.Logger
	metrics     *metrics.Metrics
	handler     http.Handler
	lifecycle   inflight.Lifecycle
	connections *inflight.Connections
	limits      *limits
	origins     []*regexp.Regexp // of Config.Browser
	strict      []string         // the header of Config.Browser.StrictTransport; nil: none
}

// New checks the configuration and returns its Chain. Run must run while it serves.
func New(cfg Config) (*Chain, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.complete()
	c := &Chain{
		cfg: cfg, log: cfg.Logger, metrics: cfg.Metrics,
		connections: inflight.NewConnections(cfg.Connections), limits: newLimits(&cfg),
	}
	c.metrics.SetBounds(c.limits.bounds(c.connections))
	for _, pattern := range cfg.Browser.AllowedOrigins {
		c.origins = append(c.origins, regexp.MustCompile(pattern)) // Browser.Check has compiled it
	}
	if directives := cfg.Browser.StrictTransport; len(directives) > 0 {
		c.strict = []string{strings.Join(directives, "; ")}
	}
	c.handler = c.filters()
	return c, nil
}

// ServeHTTP implements http.Handler.
func (c *Chain) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// Metrics returns the metrics of the requests.
func (c *Chain) Metrics() *metrics.Metrics { return c.metrics }

// Lifecycle returns the requests in flight, for shutdown.
func (c *Chain) Lifecycle() *inflight.Lifecycle { return &c.lifecycle }

// Connections returns the counted connections, for listeners.
func (c *Chain) Connections() *inflight.Connections { return c.connections }

// Run delivers audit events, log records and spans until ctx ends, and then what is left
// of them. ctx must not end before the last request.
func (c *Chain) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.cfg.Audit.Run(ctx); ctx.Err() == nil {
			c.log.Error("audit ended", "err", err)
		}
	})
	// These return only the error of ctx.
	if c.cfg.AccessLog != nil {
		running.Go(func() { _ = c.cfg.AccessLog.Run(ctx) })
	}
	running.Go(func() { _ = c.cfg.Tracer.Run(ctx) })
	running.Wait()
}

// filters returns the handler behind all filters. Headers and errors of a filter are
// observed by those above it and not by those below.
func (c *Chain) filters() http.Handler {
	filters := []filter{
		c.open,         // requeststate.go: the state of the request, its Action and its id
		c.recover,      // below: a panic ends its own request only
		c.completeness, // completeness.go: no 404 while paths are missing
		c.observe,      // observe.go: log and metrics
		before(
			c.rejectDuringShutdown, // shutdown.go: 429
			c.hsts,                 // browser.go: Strict-Transport-Security
			c.cacheControl,         // below
			c.goaway,               // below: HTTP/2 connections end by chance
			c.host,                 // host.go: 400 to a Host that is none
			c.refuse,               // auth.go: queries and requests that are refused to every user
		),
		c.track,       // shutdown.go: what shutdown waits for or ends
		c.finishAudit, // audit.go: the result of the request
		c.deadline,    // deadline.go: 504
		before(
			c.collectWarnings, // warning.go
			c.cors,            // browser.go: Access-Control-*; 204 to preflights
			c.crossOrigin,     // browser.go: 403 to writes and upgrades of foreign pages
			c.authenticate,    // auth.go: 401; credentials are removed
		),
		c.trace, // trace.go: spans of sampled requests
		before(
			c.audit, // audit.go: the user and the request
		),
		c.impersonate, // below
		before(
			c.limitConnections, // limits.go: 429
			c.limitLongRunning, // limits.go: 429
			c.limitInFlight,    // limits.go: 429; authorizes a request with a body before it waits for it
			c.authorize,        // auth.go: 403
		),
	}
	handler := http.HandlerFunc(c.cfg.Handler.ServeHTTP)
	for i := len(filters) - 1; i >= 0; i-- {
		handler = filters[i](handler)
	}
	return handler
}

// filter wraps a handler.
type filter func(next http.HandlerFunc) http.HandlerFunc

// step runs before a request proceeds. It returns false if it has answered the request.
type step func(w http.ResponseWriter, r *http.Request) (proceed bool)

// before makes a filter of steps. A filter uses the stack for as long as the request
// lasts, which matters for watches; a step does not.
func before(steps ...step) filter {
	return func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for _, proceed := range steps {
				if !proceed(w, r) {
					drainBody(w, r)
					return
				}
			}
			next(w, r)
		}
	}
}

const (
	// drainBytes bounds what drainBody reads: what net/http reads of an HTTP/1.1
	// request, and what an HTTP/2 client can have sent.
	drainBytes = 256 << 10
	// drainTime bounds how long it reads.
	drainTime = time.Second
)

// drainBody reads the body of a request that was answered without it. Over HTTP/2
// net/http otherwise resets the stream after the response (NO_ERROR; RFC 9113, 8.1), and
// clients that are still sending, such as curl 7.88, lose the response. A larger body is
// not read.
func drainBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 || r.Body == nil || r.Body == http.NoBody || r.ContentLength > drainBytes || r.Header["Expect"] != nil {
		return
	}
	// If the deadline cannot be set, the server's own limits apply.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, r.Body, drainBytes)
}

// impersonate is Config.Impersonation.
func (c *Chain) impersonate(next http.HandlerFunc) http.HandlerFunc {
	if c.cfg.Impersonation == nil {
		return next
	}
	return c.cfg.Impersonation(before(c.impersonated, c.auditImpersonation)(next)).ServeHTTP
}

// impersonated records the Action with the impersonated user.
func (c *Chain) impersonated(_ http.ResponseWriter, r *http.Request) bool {
	rs := stateOf(r.Context())
	rs.acting = resource.ActionFrom(r.Context())
	rs.filterTimes.impersonation = rs.lap()
	c.metrics.Filtered(metrics.FilterImpersonation, rs.filterTimes.impersonation)
	return true
}

// cacheControl keeps responses out of shared caches unless the handler sets Cache-Control.
func (c *Chain) cacheControl(_ http.ResponseWriter, r *http.Request) bool {
	stateOf(r.Context()).cacheControl = true
	return true
}

// goaway ends connections that are to end by the Lifecycle, and HTTP/2 connections by chance,
// after the requests in flight on them. Clients keep connections for as long as they can, so a
// server that was restarted behind a load balancer would get none for hours.
func (c *Chain) goaway(_ http.ResponseWriter, r *http.Request) bool {
	chance := c.cfg.GoawayChance
	switch {
	case c.lifecycle.Leaving() && !asksForUpgrade(r):
		stateOf(r.Context()).closing.Store(true)
	case chance > 0 && r.ProtoMajor == 2 && rand.Float64() < chance:
		stateOf(r.Context()).closing.Store(true)
	}
	return true
}

// recover turns a panic into a 500, or ends the connection (over HTTP/2 the stream) if the
// response has begun. http.ErrAbortHandler, by which handlers ask for that, passes through.
func (c *Chain) recover(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			rs := stateOf(r.Context())
			if cause == http.ErrAbortHandler {
				c.metrics.Aborted(r, rs.action)
				panic(cause)
			}
			c.log.Error("handler panicked", "cause", cause, "method", r.Method, "uri", resource.RedactURI(r.RequestURI),
				"auditID", rs.auditID[0], "stack", string(debug.Stack()))
			if rs.code != 0 {
				panic(http.ErrAbortHandler)
			}
			rs.warnings.collect(false)
			http.Error(w, "This request caused apiserver to panic. Look in the logs for details.", http.StatusInternalServerError)
		}()
		next(w, r)
	}
}
