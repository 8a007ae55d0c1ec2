package filter

import (
	"context"
	"net/http"
	"strings"
	"time"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authz"
	"portico/resource/response"
	"portico/resource/serve/metrics"
)

// Annotations of events about authorization.
const (
	annotationDecision = "authorization.k8s.io/decision"
	annotationReason   = "authorization.k8s.io/reason"
)

// audit begins the audit of a request after authentication and before impersonation. A gateway gets
// the annotations of admission also from a server without an audit policy. finishAudit ends the audit.
func (c *Chain) audit(w http.ResponseWriter, r *http.Request) bool {
	rs := stateOf(r.Context())
	var audited *audit.Request
	if c.cfg.Audit != nil {
		var err error
		audited, err = c.cfg.Audit.Begin(r, rs.arrival())
		c.metrics.Filtered(metrics.FilterAudit, rs.lap())
		if err != nil {
			response.WriteStatus(w, r, err)
			return false
		}
	}
	if c.cfg.ReturnAnnotations {
		rs.annotationLevel = r.Header.Get(audit.HeaderAnnotations)
		delete(r.Header, audit.HeaderAnnotations)
	}
	if audited == nil && rs.annotationLevel != "" {
		audited = audit.NewAnnotations(rs.annotationLevel)
	}
	if audited != nil {
		rs.audited.Store(audited)
		if rs.notes != nil {
			for key, value := range rs.notes.Annotations {
				audited.Annotate(key, value)
			}
		}
	}
	return true
}

// finishAudit ends the audit with the final result, also if the deadline has answered or the
// handler panicked.
func (c *Chain) finishAudit(next http.HandlerFunc) http.HandlerFunc {
	if c.cfg.Audit == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		rs := stateOf(r.Context())
		defer func() {
			cause := recover()
			rs.leaveInFlight() // a slow audit webhook takes no seats
			if audited := rs.audited.Load(); audited != nil {
				rs.auditPhases(audited)
				how := cause
				if rs.unanswered(cause) {
					how = http.ErrAbortHandler
				}
				audited.End(rs.code, how)
			}
			if cause != nil {
				panic(cause)
			}
		}()
		next(w, r)
	}
}

// auditPhases annotates the event of a slow request with its phases.
func (rs *requestState) auditPhases(audited *audit.Request) {
	if time.Since(rs.start) <= audit.Slow {
		return
	}
	annotate := func(name string, took time.Duration) {
		if !strings.Contains(name, ".") {
			name = audit.LatencyPrefix + name
		}
		if took > 0 {
			audited.Annotate(name, took.String())
		}
	}
	annotate("authentication", rs.filterTimes.authentication)
	annotate("authorization", rs.filterTimes.authorization)
	annotate("impersonation", rs.filterTimes.impersonation)
	annotate("response-write", rs.filterTimes.responseWrite)
	rs.phases.Load().each(annotate)
}

// arrival describes the request to audit.
func (rs *requestState) arrival() audit.Arrival {
	return audit.Arrival{Action: rs.action, ID: rs.auditID[0], Time: rs.start}
}

// auditRefusal audits a request that is refused before its user is known.
func (c *Chain) auditRefusal(r *http.Request, message string) {
	if c.cfg.Audit == nil {
		return
	}
	rs := stateOf(r.Context())
	if audited := c.cfg.Audit.Refuse(r, rs.arrival(), message); audited != nil {
		rs.audited.Store(audited)
	}
}

// credentialsOf returns audit's message for a request that failed authentication: the
// kinds of its credentials. It is called before they are removed; "" without audit.
func (c *Chain) credentialsOf(r *http.Request) string {
	if c.cfg.Audit == nil {
		return ""
	}
	var kinds []string
	if _, _, ok := r.BasicAuth(); ok {
		kinds = append(kinds, "basic")
	}
	if kind, token, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " "); ok && token != "" && strings.EqualFold(kind, "bearer") {
		kinds = append(kinds, "bearer")
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		kinds = append(kinds, "x509")
	}
	if len(kinds) == 0 {
		return "Authentication failed, no credentials provided"
	}
	return "Authentication failed, attempted: " + strings.Join(kinds, ", ")
}

// auditImpersonation adds the impersonated user to the event.
func (c *Chain) auditImpersonation(_ http.ResponseWriter, r *http.Request) bool {
	if c.cfg.Audit == nil {
		return true
	}
	if action := resource.ActionFrom(r.Context()); action.Impersonator != nil {
		if audited := stateOf(r.Context()).audited.Load(); audited != nil {
			audited.Impersonated(action)
		}
	}
	return true
}

// auditDecision annotates the event with the Authorizer's decision.
func auditDecision(ctx context.Context, decision authz.Decision, reason string, err error) {
	rs := stateOf(ctx)
	if rs == nil {
		return
	}
	audited := rs.audited.Load()
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
