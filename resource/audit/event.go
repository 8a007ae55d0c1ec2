package audit

import (
	"context"
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

// A User-Agent that is longer, in bytes, is cut, as upstream does it.
const (
	maxUserAgent = 1024
	userAgentCut = "...TRUNCATED"
)

// form is an event that is made to be told and then made again: sinks keep none.
type form struct {
	event       auditapi.Event
	annotations map[string]string
	extra       map[string]authenticationv1.ExtraValue
	ref         auditapi.ObjectReference
	status      metav1.Status
}

func newForm() any {
	return &form{annotations: map[string]string{}, extra: map[string]authenticationv1.ExtraValue{}}
}

// release gives the form back. It holds nothing of its request.
func (a *Auditor) release(f *form) {
	clear(f.annotations)
	clear(f.extra)
	*f = form{annotations: f.annotations, extra: f.extra}
	a.forms.Put(f)
}

// tell tells the sinks what is known at a stage, unless the policy leaves it out.
// It reports whether they took it.
func (q *Request) tell(stage auditapi.Stage) bool {
	if u := q.upstream.Load(); u != nil {
		return u.ProcessEventStage(context.Background(), stage) // which comes to toldBy
	}
	if slices.Contains(q.config.OmitStages, stage) {
		return true
	}
	audit.ObserveEvent(context.Background())
	at := metav1.NewMicroTime(q.arrived)
	if stage != auditapi.StageRequestReceived {
		at = metav1.NewMicroTime(time.Now())
	}
	return q.toldBy(&auditapi.Event{Stage: stage, StageTimestamp: at})
}

// toldBy tells the sinks what is known, with what upstream's event has besides.
func (q *Request) toldBy(e *auditapi.Event) bool {
	f := q.auditor.forms.Get().(*form)
	defer q.auditor.release(f)
	f.event = *e
	q.fill(f)
	return q.auditor.sink.ProcessEvents(&f.event)
}

// fill makes the event whole.
func (q *Request) fill(f *form) {
	e := &f.event
	e.Level, e.AuditID, e.RequestReceivedTimestamp = q.config.Level, types.UID(q.id), metav1.NewMicroTime(q.arrived)
	e.RequestURI, e.Verb, e.UserAgent, e.SourceIPs = q.uri, q.action.Verb, q.userAgent, q.sources
	if u := q.action.User; u != nil {
		e.User = userInfo(u, f.extra)
	}
	if q.as != nil {
		as := userInfo(q.as.User, map[string]authenticationv1.ExtraValue{})
		e.ImpersonatedUser = &as
		if q.as.ImpersonationConstraint != "" {
			e.AuthenticationMetadata = &auditapi.AuthenticationMetadata{ImpersonationConstraint: q.as.ImpersonationConstraint}
		}
	}
	if a := q.action; a.IsResource {
		f.ref = auditapi.ObjectReference{
			Namespace: a.Namespace, Name: a.Name, Resource: a.Resource, Subresource: a.Subresource, APIGroup: a.Group, APIVersion: a.Version,
		}
		refine(&f.ref, e.ObjectRef)
		refine(&f.ref, q.ref)
		e.ObjectRef = &f.ref
	}
	if q.status != nil || q.code != 0 {
		if q.status != nil {
			f.status = *q.status
		}
		if q.code != 0 {
			f.status.Code = q.code
		}
		e.ResponseStatus = &f.status
	}
	if q.sent != nil {
		e.RequestObject = &runtime.Unknown{Raw: q.sent, ContentType: runtime.ContentTypeJSON}
	}
	if q.answered != nil {
		e.ResponseObject = &runtime.Unknown{Raw: q.answered, ContentType: runtime.ContentTypeJSON}
	}
	for k, v := range e.Annotations {
		f.annotations[k] = v
	}
	q.annotate(f.annotations)
	e.Annotations = f.annotations
}

// userInfo is a user as events have one; room is for its extras.
func userInfo(u *resource.User, room map[string]authenticationv1.ExtraValue) authenticationv1.UserInfo {
	for k, v := range u.Extra {
		room[k] = v
	}
	return authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: room}
}

// refine takes from another reference what this one does not say.
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

// annotate puts the request's annotations into those of an event.
func (q *Request) annotate(all map[string]string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := 0; i+1 < len(q.annotations); i += 2 {
		all[q.annotations[i]] = q.annotations[i+1]
	}
}

// teller is a sink of upstream's events.
type teller func(*auditapi.Event) bool

// ProcessEvents implements audit.Sink.
func (t teller) ProcessEvents(events ...*auditapi.Event) bool {
	taken := true
	for _, e := range events {
		taken = t(e) && taken
	}
	return taken
}

// upstreamContext returns upstream's audit of the request, in which upstream's
// parts note what they have to say. It is made for who asks: nobody does of most
// requests, and it is larger than all that is known of them.
func (q *Request) upstreamContext() *audit.AuditContext {
	if u := q.upstream.Load(); u != nil {
		return u
	}
	ctx := audit.WithAuditContext(context.Background())
	audit.WithAuditID(ctx, types.UID(q.id))
	u := audit.AuditContextFrom(ctx)
	_ = u.Init(q.config, teller(q.toldBy)) // nobody else has it: it is not initialized yet
	if !q.upstream.CompareAndSwap(nil, u) {
		return q.upstream.Load()
	}
	return u
}

// keySeen is a context that takes down what it is asked for.
type keySeen struct {
	context.Context
	key any
}

// Value implements context.Context.
func (c *keySeen) Value(key any) any {
	c.key = key
	return nil
}

// upstreamKey is the key that upstream's audit is found by in a context, which
// upstream keeps to itself.
func upstreamKey() any {
	seen := &keySeen{Context: context.Background()}
	_ = audit.AuditContextFrom(seen)
	return seen.key
}

// sourcesOf returns whom a request came from, by its headers and its connection.
func sourcesOf(r *http.Request) []string {
	if r.Header["X-Forwarded-For"] == nil && r.Header["X-Real-Ip"] == nil {
		var room [64]byte
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" && !ip.Is4In6() && string(ip.AppendTo(room[:0])) == host {
			return []string{host} // as it would be written
		}
	}
	var all []string
	for _, ip := range utilnet.SourceIPs(r) {
		all = append(all, ip.String())
	}
	return all
}

// userAgentOf returns the User-Agent of a request, cut where it is too long.
func userAgentOf(r *http.Request) string {
	agent := r.UserAgent()
	if len(agent) > maxUserAgent {
		agent = agent[:maxUserAgent] + userAgentCut
	}
	return agent
}
