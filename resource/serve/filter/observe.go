package filter

import (
	"context"
	"log/slog"
	"net/http"
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
			defer func() { ended() }()
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
