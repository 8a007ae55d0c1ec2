package serve

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"portico/resource"
	"portico/resource/serve/metrics"
)

// observe logs and counts every request when it is over. Long-running ones are
// also counted while they last, from the moment they were accepted.
func (s *Server) observe(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeFrom(r.Context())
		if x.action.LongRunning() || x.leaving != nil {
			ended := func() {}
			defer func() { ended() }()
			x.onHeader = func(code int) {
				if code < 300 && (x.action.LongRunning() || code == http.StatusSwitchingProtocols) && !x.uncounted {
					ended = s.metrics.LongRunning(r, x.action)
				}
			}
		}
		defer func() {
			cause := recover()
			code, took := x.final(cause), time.Since(x.start)
			if !x.uncounted {
				s.metrics.Answered(r, x.action, metrics.Response{
					Component: x.component, Code: code, Bytes: x.bytes, Took: took, Waited: x.parts.Load().waitedInAll(), Terminated: x.terminated,
				})
			}
			s.logRequest(r, x, code, took)
			if s.cfg.AccessLog != nil {
				s.cfg.AccessLog.Add(x.ended(r, code, took))
			}
			if cause != nil {
				panic(cause)
			}
		}()
		next(w, r)
	}
}

// final is the status that a request is counted, logged and traced with when it is
// over; cause is what its handler panicked with. It is the one that was sent, or
// is about to be, and CodeClientGone if none was because nobody was
// there to take it.
func (x *exchange) final(cause any) int {
	switch {
	case x.code != 0:
		return x.code
	case x.unanswered(cause):
		return CodeClientGone
	case cause != nil:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// unanswered reports whether a request is over without an answer: its client has
// gone, or the handler gave up.
func (x *exchange) unanswered(cause any) bool {
	return x.code == 0 && (cause == http.ErrAbortHandler || cause == nil && x.client.Err() != nil)
}

// observing runs what is told of requests in the background. The returned function
// ends it, after the last request: what was told is sent on before it returns.
func (s *Server) observing(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.cfg.Audit.Run(ctx); ctx.Err() == nil {
			s.log.Error("audit ended", "err", err)
		}
	})
	// These return only the error of ctx.
	if s.cfg.AccessLog != nil {
		running.Go(func() { _ = s.cfg.AccessLog.Run(ctx) })
	}
	running.Go(func() { _ = s.cfg.Tracer.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// logRequest logs the request at debug level; a 500 is worth a look and is
// logged as a warning.
func (s *Server) logRequest(r *http.Request, x *exchange, code int, took time.Duration) {
	level := slog.LevelDebug
	if code == http.StatusInternalServerError && !isHealth(x.action.Path) {
		level = slog.LevelWarn
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	// Logged even though the client may have gone.
	ctx := context.WithoutCancel(r.Context())
	attrs := []slog.Attr{
		slog.String("verb", x.action.Verb),
		slog.String("uri", resource.RedactURI(r.RequestURI)),
		slog.Int("code", code),
		slog.Duration("took", took),
		slog.Int64("bytes", x.bytes),
		slog.String("user", nameOf(x.who().User)),
		slog.String("userAgent", r.UserAgent()),
		slog.String("remote", r.RemoteAddr),
		slog.String("auditID", x.auditID[0]),
	}
	if by := x.who().Impersonator; by != nil {
		attrs = append(attrs, slog.String("impersonator", by.Name))
	}
	s.log.LogAttrs(ctx, level, "request", attrs...)
}
