package serve

import (
	"context"
	"net/http"
	"strings"
	"time"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authz"
	"portico/resource/rest"
	"portico/resource/serve/metrics"
)

// Annotations of events about authorization.
const (
	annotationDecision = "authorization.k8s.io/decision"
	annotationReason   = "authorization.k8s.io/reason"
)

// audit begins the audit of a request whose sender is known, and who is not
// impersonated yet. finishAudit, above, ends it.
func (s *Server) audit(w http.ResponseWriter, r *http.Request) bool {
	if s.cfg.Audit == nil {
		return true
	}
	x := exchangeFrom(r.Context())
	audited, err := s.cfg.Audit.Begin(r, x.arrival())
	s.metrics.Filtered(metrics.FilterAudit, x.lap())
	if err != nil {
		rest.WriteStatus(w, r, err)
		return false
	}
	if audited != nil {
		x.audited.Store(audited)
	}
	return true
}

// finishAudit tells what became of a request, once that is final: also of one
// that the deadline has answered, or that panicked.
func (s *Server) finishAudit(next http.HandlerFunc) http.HandlerFunc {
	if s.cfg.Audit == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeFrom(r.Context())
		defer func() {
			cause := recover()
			if audited := x.audited.Load(); audited != nil {
				x.auditTimes(audited)
				how := cause
				if x.unanswered(cause) {
					how = http.ErrAbortHandler
				}
				audited.End(x.code, how)
			}
			if cause != nil {
				panic(cause)
			}
		}()
		next(w, r)
	}
}

// auditTimes tells audit what a slow request spent its time on.
func (x *exchange) auditTimes(audited *audit.Request) {
	if time.Since(x.start) <= audit.Slow {
		return
	}
	tell := func(name string, took time.Duration) {
		if !strings.Contains(name, ".") {
			name = audit.LatencyPrefix + name
		}
		if took > 0 {
			audited.Annotate(name, took.String())
		}
	}
	tell("authentication", x.took.authentication)
	tell("authorization", x.took.authorization)
	tell("impersonation", x.took.impersonation)
	tell("response-write", x.took.writing)
	x.parts.Load().each(tell)
}

// arrival is what audit is told of a request.
func (x *exchange) arrival() audit.Arrival {
	return audit.Arrival{Action: x.action, ID: x.auditID[0], Time: x.start}
}

// auditRefusal has a request audited that is about to be refused before anybody
// knows who makes it.
func (s *Server) auditRefusal(r *http.Request, message string) {
	if s.cfg.Audit == nil {
		return
	}
	x := exchangeFrom(r.Context())
	if audited := s.cfg.Audit.Refuse(r, x.arrival(), message); audited != nil {
		x.audited.Store(audited)
	}
}

// credentialsOf says, for audit, by what a request tries to show who makes it.
// It must be asked before the credentials are taken away; "" without audit.
func (s *Server) credentialsOf(r *http.Request) string {
	if s.cfg.Audit == nil {
		return ""
	}
	var shown []string
	if _, _, ok := r.BasicAuth(); ok {
		shown = append(shown, "basic")
	}
	if kind, token, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " "); ok && token != "" && strings.EqualFold(kind, "bearer") {
		shown = append(shown, "bearer")
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		shown = append(shown, "x509")
	}
	if len(shown) == 0 {
		return "Authentication failed, no credentials provided"
	}
	return "Authentication failed, attempted: " + strings.Join(shown, ", ")
}

// auditImpersonation tells audit as whom a request goes on.
func (s *Server) auditImpersonation(_ http.ResponseWriter, r *http.Request) bool {
	if s.cfg.Audit == nil {
		return true
	}
	if action := resource.ActionFrom(r.Context()); action.Impersonator != nil {
		if audited := exchangeFrom(r.Context()).audited.Load(); audited != nil {
			audited.Impersonated(action)
		}
	}
	return true
}

// auditDecision tells audit what the authorizer said.
func auditDecision(ctx context.Context, decision authz.Decision, reason string, err error) {
	x := exchangeFrom(ctx)
	if x == nil {
		return
	}
	audited := x.audited.Load()
	switch {
	case audited == nil:
	case decision == authz.Allow:
		audited.Annotate(annotationDecision, "allow", annotationReason, reason)
	case err != nil:
		audited.Annotate(annotationReason, "internal error")
	default:
		audited.Annotate(annotationDecision, "forbid", annotationReason, reason)
	}
}
