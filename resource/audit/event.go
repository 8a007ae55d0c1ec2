package audit

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"portico/resource"
)

// A longer User-Agent, in bytes, is cut, as upstream does.
const (
	maxUserAgent = 1024
	userAgentCut = "...TRUNCATED"
)

// tell sends the event of a stage to the sinks, unless the policy omits the stage. It
// reports whether they accepted it.
func (q *Request) tell(stage auditapi.Stage) bool {
	if u := q.upstream.Load(); u != nil {
		return u.ProcessEventStage(context.Background(), stage) // which calls send
	}
	if slices.Contains(q.config.OmitStages, stage) {
		return true
	}
	audit.ObserveEvent(context.Background())
	at := metav1.NewMicroTime(q.arrived)
	if stage != auditapi.StageRequestReceived {
		at = metav1.NewMicroTime(time.Now())
	}
	return q.send(&auditapi.Event{Stage: stage, StageTimestamp: at})
}

// send sends an event with what is known of the request to the sinks. The event's own
// fields take precedence.
func (q *Request) send(e *auditapi.Event) bool {
	event := *e
	q.fill(&event)
	return q.auditor.sink.ProcessEvents(&event)
}

// fill completes the event.
func (q *Request) fill(e *auditapi.Event) {
	e.Level, e.AuditID, e.RequestReceivedTimestamp = q.config.Level, types.UID(q.id), metav1.NewMicroTime(q.arrived)
	e.RequestURI, e.Verb, e.UserAgent, e.SourceIPs = q.uri, q.action.Verb, q.userAgent, q.sources
	if u := q.action.User; u != nil {
		e.User = userInfo(u)
	}
	if q.as != nil {
		as := userInfo(q.as.User)
		e.ImpersonatedUser = &as
		if q.as.ImpersonationConstraint != "" {
			e.AuthenticationMetadata = &auditapi.AuthenticationMetadata{ImpersonationConstraint: q.as.ImpersonationConstraint}
		}
	}
	if a := q.action; a.IsResource {
		ref := &auditapi.ObjectReference{
			Namespace: a.Namespace, Name: a.Name, Resource: a.Resource, Subresource: a.Subresource, APIGroup: a.Group, APIVersion: a.Version,
		}
		refine(ref, e.ObjectRef)
		refine(ref, q.ref)
		e.ObjectRef = ref
	}
	if q.status != nil || q.code != 0 {
		status := metav1.Status{}
		if q.status != nil {
			status = *q.status
		}
		if q.code != 0 {
			status.Code = q.code
		}
		e.ResponseStatus = &status
	}
	if q.sent != nil {
		e.RequestObject = &runtime.Unknown{Raw: q.sent, ContentType: runtime.ContentTypeJSON}
	}
	if q.answered != nil {
		e.ResponseObject = &runtime.Unknown{Raw: q.answered, ContentType: runtime.ContentTypeJSON}
	}
	e.Annotations = q.annotate(e.Annotations)
}

// userInfo returns a user in the form of events.
func userInfo(u *resource.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for k, v := range u.Extra {
		if info.Extra == nil {
			info.Extra = make(map[string]authenticationv1.ExtraValue, len(u.Extra))
		}
		info.Extra[k] = v
	}
	return info
}

// refine fills the empty fields of a reference from another.
func refine(ref, other *auditapi.ObjectReference) {
	if other == nil {
		return
	}
	for _, m := range [...]struct {
		mine  *string
		other string
	}{{&ref.Namespace, other.Namespace}, {&ref.Name, other.Name}, {&ref.ResourceVersion, other.ResourceVersion}} {
		if *m.mine == "" {
			*m.mine = m.other
		}
	}
	if ref.UID == "" {
		ref.UID = other.UID
	}
}

// annotate returns a copy of an event's annotations with those of the request.
func (q *Request) annotate(others map[string]string) map[string]string {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[string]string, len(others)+len(q.annotations)/2)
	maps.Copy(all, others)
	for i := 0; i+1 < len(q.annotations); i += 2 {
		all[q.annotations[i]] = q.annotations[i+1]
	}
	return all
}

// sinkOf makes an audit.Sink of a function.
type sinkOf func(*auditapi.Event) bool

// ProcessEvents implements audit.Sink.
func (f sinkOf) ProcessEvents(events ...*auditapi.Event) bool {
	ok := true
	for _, e := range events {
		ok = f(e) && ok
	}
	return ok
}

// upstreamContext returns upstream's audit context of the request, to which upstream's
// packages add annotations. It is made on demand: most requests need none, and it is
// larger than the Request.
func (q *Request) upstreamContext() *audit.AuditContext {
	if u := q.upstream.Load(); u != nil {
		return u
	}
	ctx := audit.WithAuditContext(context.Background())
	audit.WithAuditID(ctx, types.UID(q.id))
	u := audit.AuditContextFrom(ctx)
	_ = u.Init(q.config, sinkOf(q.send)) // it is not initialized yet, so there is no error
	if !q.upstream.CompareAndSwap(nil, u) {
		return q.upstream.Load()
	}
	return u
}

// keySeen is a context that records the key it is asked for.
type keySeen struct {
	context.Context
	key any
}

// Value implements context.Context.
func (c *keySeen) Value(key any) any {
	c.key = key
	return nil
}

// upstreamKey returns the context key of upstream's audit context, which upstream does not
// export.
func upstreamKey() any {
	seen := &keySeen{Context: context.Background()}
	_ = audit.AuditContextFrom(seen)
	return seen.key
}

// sourcesOf returns the addresses that a request came from, by its headers and its
// connection.
func sourcesOf(r *http.Request) []string {
	if r.Header["X-Forwarded-For"] == nil && r.Header["X-Real-Ip"] == nil {
		var room [64]byte
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" && !ip.Is4In6() && string(ip.AppendTo(room[:0])) == host {
			return []string{host} // in canonical form already
		}
	}
	var all []string
	for _, ip := range utilnet.SourceIPs(r) {
		all = append(all, ip.String())
	}
	return all
}

// userAgentOf returns the User-Agent of a request, cut to maxUserAgent.
func userAgentOf(r *http.Request) string {
	agent := r.UserAgent()
	if len(agent) > maxUserAgent {
		agent = agent[:maxUserAgent] + userAgentCut
	}
	return agent
}
