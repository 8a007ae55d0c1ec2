package filter

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"portico/resource"
	"portico/resource/serve/metrics"
)

// observe logs and counts every request that has ended. It counts long-running ones also
// while they last, from the header of their response.
func (c *Chain) observe(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rs := stateOf(r.Context())
		if rs.action.LongRunning() || rs.upgrade != nil {
			ended := func() {}
			defer func() {
				rs.onHeader = nil // an empty response gets its header afterwards
				ended()
			}()
			rs.onHeader = func(code int) {
				if code < 300 && (rs.action.LongRunning() || code == http.StatusSwitchingProtocols) && !rs.uncounted {
					ended = c.metrics.LongRunning(r, rs.action)
				}
			}
		}
		defer func() {
			cause := recover()
			c.observeEnd(r, rs, rs.finalCode(cause), time.Since(rs.start))
			if cause != nil {
				panic(cause)
			}
		}()
		next(w, r)
	}
}

// observeEnd logs and counts a request that has ended.
func (c *Chain) observeEnd(r *http.Request, rs *requestState, code int, took time.Duration) {
	if !rs.uncounted {
		c.metrics.Answered(r, rs.action, metrics.Response{
			Component: rs.component, Code: code, Bytes: rs.bytes, Took: took, Waited: rs.phases.Load().totalWait(), Terminated: rs.terminated,
		})
	}
	c.logRequest(r, rs, code, took)
	if c.cfg.AccessLog != nil {
		c.cfg.AccessLog.Add(rs.end(r, code, took))
	}
}

// finalCode returns the status with which a request that has ended is counted, logged and
// traced: the one that was or will be sent, or CodeClientGone. cause is the value with
// which its handler panicked.
func (rs *requestState) finalCode(cause any) int {
	switch {
	case rs.code != 0:
		return rs.code
	case rs.unanswered(cause):
		return CodeClientGone
	case cause != nil:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// unanswered reports whether a request ended without a response: the client has gone, or
// the handler aborted.
func (rs *requestState) unanswered(cause any) bool {
	return rs.code == 0 && (cause == http.ErrAbortHandler || cause == nil && rs.client.Err() != nil)
}

// logRequest logs the request at level debug, or at level warning if the code is 500.
func (c *Chain) logRequest(r *http.Request, rs *requestState, code int, took time.Duration) {
	level := slog.LevelDebug
	if code == http.StatusInternalServerError && !isHealth(rs.action.Path) {
		level = slog.LevelWarn
	}
	if !c.log.Enabled(r.Context(), level) {
		return
	}
	user := rs.user()
	attrs := []slog.Attr{
		slog.String("verb", rs.action.Verb),
		slog.String("uri", resource.RedactURI(r.RequestURI)),
		slog.Int("code", code),
		slog.Duration("took", took),
		slog.Int64("bytes", rs.bytes),
		slog.String("user", nameOf(user.User)),
		slog.String("userAgent", r.UserAgent()),
		slog.String("remote", r.RemoteAddr),
		slog.String("auditID", rs.auditID[0]),
	}
	if by := user.Impersonator; by != nil {
		attrs = append(attrs, slog.String("impersonator", by.Name))
	}
	// The context may have ended.
	c.log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
}

// phases are named parts of a request's time. They are made for requests that have any.
// Safe for concurrent use; nil has none.
type phases struct {
	mu     sync.Mutex
	waited time.Duration // of AddWait
	all    []phase
}

type phase struct {
	name string
	time time.Duration
}

// AddPhase adds d to a named phase of the request; slow requests have their phases as audit
// annotations. Names are few and fixed: upstream's ("mutating-webhook"), or an annotation
// with a domain ("latency.portico.dev/upstream"). Safe for concurrent use.
func AddPhase(ctx context.Context, name string, d time.Duration) {
	if rs := stateOf(ctx); rs != nil && rs.audited.Load() != nil {
		rs.makePhases().add(name, d)
	}
}

// AddWait is AddPhase for the time that another program took on behalf of its own
// configuration, such as a webhook: it is not part of
// apiserver_request_sli_duration_seconds. Safe for concurrent use.
func AddWait(ctx context.Context, name string, d time.Duration) {
	rs := stateOf(ctx)
	if rs == nil {
		return
	}
	p := rs.makePhases()
	p.add(name, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waited += d
}

// makePhases returns the request's phases.
func (rs *requestState) makePhases() *phases {
	if p := rs.phases.Load(); p != nil {
		return p
	}
	rs.phases.CompareAndSwap(nil, new(phases))
	return rs.phases.Load()
}

func (p *phases) add(name string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.all {
		if p.all[i].name == name {
			p.all[i].time += d
			return
		}
	}
	p.all = append(p.all, phase{name, d})
}

// totalWait returns the sum of AddWait.
func (p *phases) totalWait() time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waited
}

// each calls f for every phase.
func (p *phases) each(f func(name string, d time.Duration)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		f(one.name, one.time)
	}
}
