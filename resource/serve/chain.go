package serve

import (
	"net/http"

	"portico/resource"
	"portico/resource/serve/metrics"
)

// filter wraps a handler. It is handed on as a function: by way of the interface
// each would take a frame more of the stack.
type filter func(next http.HandlerFunc) http.HandlerFunc

// step is what is done before a request goes on, and says whether it does; if
// not, it has answered.
type step func(w http.ResponseWriter, r *http.Request) (goesOn bool)

// before makes a filter of steps. What a filter takes of the stack, a watch
// holds for as long as it lasts, in every filter that it has passed; a step that
// is over holds nothing.
func before(steps ...step) filter {
	return func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for _, done := range steps {
				if !done(w, r) {
					readRefused(w, r)
					return
				}
			}
			next(w, r)
		}
	}
}

// chain is what a request passes, from the outside in. The order can be
// observed: a filter's effects show on the errors of those below it and not on
// those above (contract 0.1).
func (s *Server) chain() http.Handler {
	filters := []filter{
		s.open,         // exchange.go, auditid.go: the record of the request; verb, resource, name; its id
		s.recover,      // recovery.go: a panic costs its own request only
		s.completeness, // completeness.go: no 404 for what is not there yet
		s.observe,      // observe.go: log and metrics
		before(
			s.turnAway,     // turnaway.go: 429 once shutting down
			s.cacheControl, // cachecontrol.go: responses are nobody else's
			s.goaway,       // goaway.go: connections end by chance
			s.refuseEarly,  // authentication.go: what is refused to every user
		),
		s.track,       // track.go: what shutdown waits for and cuts off
		s.finishAudit, // audit.go: what became of the request
		s.deadline,    // deadline.go: 504
		before(
			s.collectWarnings, // warning.go
			s.authenticate,    // authentication.go: 401; credentials end here
		),
		s.trace, // trace.go: spans of what is sampled
		before(
			s.audit, // audit.go: who did what, by the audit policy
		),
		s.impersonate, // below: as whom
		before(
			s.limitConnections, // connections.go: 429 to one connection too many
			s.limitLong,        // longlimit.go: 429 to one watch too many
		),
		s.limit, // limit.go: 429 under load
		before(
			s.authorize, // authorization.go: 403
		),
	}
	handler := http.HandlerFunc(s.cfg.Handler.ServeHTTP)
	for i := len(filters) - 1; i >= 0; i-- {
		handler = filters[i](handler)
	}
	return handler
}

// impersonate is the owner's filter between authentication and authorization.
func (s *Server) impersonate(next http.HandlerFunc) http.HandlerFunc {
	if s.cfg.Impersonation == nil {
		return next
	}
	return s.cfg.Impersonation(before(s.impersonated, s.auditImpersonation)(next)).ServeHTTP
}

// impersonated takes down as whom the request goes on, for the logs, and how long that
// took.
func (s *Server) impersonated(_ http.ResponseWriter, r *http.Request) bool {
	x := exchangeFrom(r.Context())
	x.acting = resource.ActionFrom(r.Context())
	x.took.impersonation = x.lap()
	s.metrics.Filtered(metrics.FilterImpersonation, x.took.impersonation)
	return true
}
