package audit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"portico/resource"
)

// Arrival describes a received request.
type Arrival struct {
	// Action is the request before impersonation; its User is nil if no user is known.
	Action *resource.Action
	// ID is the Audit-ID.
	ID string
	// Time is when the header had been read.
	Time time.Time
}

// Slow is the duration from which on a request has latency annotations.
const Slow = 500 * time.Millisecond

// LatencyPrefix is the prefix of latency annotations.
const LatencyPrefix = "apiserver.latency.k8s.io/"

// want is what the body of a response is recorded for.
type want uint8

const (
	wantNothing want = iota
	wantObject       // for the event
	wantStatus       // for the event, if it is a Status
	wantName         // for the name of the created object
	wantIssued       // for the id of the issued token
)

// limit returns the largest body for the purpose.
func (w want) limit() int {
	return [...]int{wantObject: maxObject, wantStatus: maxStatus, wantName: maxObject, wantIssued: maxObject}[w]
}

// codeClientGone is the code of a request if its client closed the connection before the
// response began, as in the access log.
const codeClientGone = 499

// Request is the audit of one request. Its event is in upstream's audit context, to which
// upstream's packages add annotations. Methods are called on the request's goroutine unless
// they say otherwise.
type Request struct {
	auditor *Auditor
	ctx     context.Context // with event
	event   *audit.AuditContext
	config  audit.RequestAuditConfig
	action  *resource.Action
	arrived time.Time
	header  http.Header // of the request's body
	// annotationsOnly: another process records the event; OnHeader and End do nothing.
	annotationsOnly bool
	// refused: the request was rejected before its user was known, and its event is complete.
	refused bool
	// long: bodies are not recorded. A client that accepts a stream of events may get
	// another response.
	long  bool
	began atomic.Bool // the response has begun

	body *recordedBody // of the request; nil: not recorded
	// object is what the events' ObjectRef has beyond the path; nil: nothing.
	object atomic.Pointer[auditapi.ObjectReference]
	// response records the body of the response, and responseHeader is its header; nil: not
	// recorded.
	response       *recording
	responseHeader http.Header
	wanted         want
}

// Begin begins the audit of a request; nil if the policy asks for none. It may replace the
// body of the request by one that records. If it returns an error the request must be
// rejected with it.
func (a *Auditor) Begin(r *http.Request, in Arrival) (*Request, error) {
	q := a.open(r, in)
	if q == nil {
		return nil, nil
	}
	if !q.event.ProcessEventStage(q.ctx, auditapi.StageRequestReceived) {
		audit.ApiserverAuditDroppedCounter.WithContext(context.Background()).Inc()
		return nil, errNotStored
	}
	if q.records() && r.Body != nil && r.Body != http.NoBody {
		q.body = &recordedBody{ReadCloser: r.Body, length: r.ContentLength, recording: q.recording(maxObject)}
		q.header = http.Header{"Content-Type": r.Header["Content-Type"], "Content-Encoding": r.Header["Content-Encoding"]}
		r.Body = q.body
	}
	return q, nil
}

// recording returns a recording of at most limit bytes, in the user's share of the memory.
func (q *Request) recording(limit int) *recording {
	return &recording{memory: q.auditor.recorded, limit: limit, user: q.action.LimitKey()}
}

// Refuse begins the audit of a request that is rejected before its user is known; nil if
// the policy asks for none. Its only event is ResponseStarted, with this message.
func (a *Auditor) Refuse(r *http.Request, in Arrival, message string) *Request {
	q := a.open(r, in)
	if q != nil {
		q.refused = true
		q.event.SetEventResponseStatus(&metav1.Status{Message: message})
	}
	return q
}

// open evaluates the policy and begins the event.
func (a *Auditor) open(r *http.Request, in Arrival) *Request {
	attributes := attributesOf(in.Action)
	config := a.policy.EvaluatePolicyRule(attributes)
	audit.ObservePolicyLevel(context.Background(), config.Level)
	if config.Level == auditapi.LevelNone {
		return nil
	}
	ctx := audit.WithAuditContext(context.Background())
	q := &Request{
		auditor: a, ctx: ctx, event: audit.AuditContextFrom(ctx), config: config, action: in.Action, arrived: in.Time,
		long: in.Action.LongRunning() && !in.Action.Streams,
	}
	audit.WithAuditID(ctx, types.UID(in.ID))
	_ = q.event.Init(config, eventSink{a.sink, &q.object}) // fails for an initialized event only
	audit.LogRequestMetadata(ctx, redacted(r), in.Time, attributes)
	return q
}

// redacted returns the request without credentials in its URL.
func redacted(r *http.Request) *http.Request {
	uri := r.URL.RequestURI()
	shown := resource.RedactURI(uri)
	if shown == uri {
		return r
	}
	u, c := *r.URL, *r
	_, u.RawQuery, _ = strings.Cut(shown, "?")
	c.URL = &u
	return &c
}

// records reports whether the event has bodies: those of resources, without streams.
func (q *Request) records() bool {
	return q.action.IsResource && !q.long && q.config.Level.GreaterOrEqual(auditapi.LevelRequest)
}

type requestKey struct{}

// Value returns upstream's audit context for its key, for the context of the request. Safe
// for concurrent use.
func (q *Request) Value(key any) any {
	if key == (requestKey{}) {
		return q
	}
	return q.ctx.Value(key)
}

// Impersonated sets the impersonated user.
func (q *Request) Impersonated(as *resource.Action) {
	constraint := ""
	if c := as.User.Constraint; c != nil {
		constraint = "impersonate:" + c.Mode
	}
	q.event.LogImpersonatedUser(userInfo(as.User), constraint)
}

// Annotate adds annotations, alternating keys and values; the first value of a key is kept.
// Safe for concurrent use.
func (q *Request) Annotate(keysAndValues ...string) {
	audit.AddAuditAnnotations(q.ctx, keysAndValues...)
}

// OnHeader is called before the header of the response is sent.
func (q *Request) OnHeader(h http.Header, code int) {
	if q.annotationsOnly || q.began.Swap(true) {
		return
	}
	q.long = q.long || code == http.StatusSwitchingProtocols || q.action.Streams && resource.IsEventStream(h)
	if q.long || q.refused {
		q.finish(auditapi.StageResponseStarted, code)
		return
	}
	if q.wanted = q.wants(code); q.wanted != wantNothing {
		q.responseHeader = http.Header{"Content-Type": h["Content-Type"], "Content-Encoding": h["Content-Encoding"]}
		q.response = q.recording(q.wanted.limit())
	}
}

// finish sends the event of a stage with the code of the response.
func (q *Request) finish(stage auditapi.Stage, code int) {
	q.event.SetEventResponseStatusCode(int32(code))
	q.event.ProcessEventStage(q.ctx, stage)
}

// wants returns what the body of a response with this code is recorded for.
func (q *Request) wants(code int) want {
	switch {
	case q.records() && q.config.Level.GreaterOrEqual(auditapi.LevelRequestResponse):
		return wantObject
	case code >= http.StatusBadRequest:
		return wantStatus
	case q.creates() && code < http.StatusMultipleChoices:
		return wantName
	case q.issues() && code < http.StatusMultipleChoices:
		return wantIssued
	}
	return wantNothing
}

// creates reports whether the request creates an object without its name in the path.
func (q *Request) creates() bool {
	return q.action.IsResource && q.action.Verb == "create" && q.action.Name == ""
}

// OnWrite is called with each piece of the response's body.
func (q *Request) OnWrite(p []byte) {
	if q.response != nil {
		q.response.write(p)
	}
}

// Reading returns a reader of src that records the response's body.
func (q *Request) Reading(src io.Reader) io.Reader {
	if q.response == nil {
		return src
	}
	return io.TeeReader(src, writerFunc(q.response.write))
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// End ends the audit: code is the status that was sent, or 0, and cause the value with
// which the handler panicked.
func (q *Request) End(code int, cause any) {
	if q.annotationsOnly {
		return
	}
	if q.refused {
		// Its response was not sent, or was that of its deadline.
		if !q.began.Swap(true) {
			q.finish(auditapi.StageResponseStarted, cmp.Or(code, codeClientGone))
		}
		return
	}
	defer q.free()
	// What is sent from now on is not part of the response.
	began := q.began.Swap(true)
	q.addRequestObject()
	if cause != nil && cause != http.ErrAbortHandler {
		q.event.SetEventResponseStatus(&metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
			Message: fmt.Sprintf("APIServer panic'd: %v", cause),
		})
		q.finish(auditapi.StagePanic, http.StatusInternalServerError) // whatever code was sent
		return
	}
	switch {
	case code == 0 && cause == nil:
		code = http.StatusOK
		q.event.SetEventResponseStatus(&metav1.Status{Status: metav1.StatusSuccess, Message: "Connection closed early"})
	case code == 0:
		code = codeClientGone
		q.event.SetEventResponseStatus(&metav1.Status{Status: metav1.StatusFailure, Message: "The client closed the connection before the response began"})
	case cause != nil && !q.long:
		q.event.SetEventResponseStatus(&metav1.Status{Status: metav1.StatusFailure, Message: "The response was cut off"})
	default:
		q.addResponse()
	}
	if q.long && !began {
		q.finish(auditapi.StageResponseStarted, code)
	}
	if took := time.Since(q.arrived); took > Slow {
		q.Annotate(LatencyPrefix+"total", took.String())
	}
	q.finish(auditapi.StageResponseComplete, code)
}

// free releases the recordings.
func (q *Request) free() {
	if q.body != nil {
		q.body.recording.free()
	}
	if q.response != nil {
		q.response.free()
	}
}
