package audit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"portico/resource"
)

// Arrival describes a request that arrives.
type Arrival struct {
	// Action is the request before impersonation; its User is nil if no user is known.
	Action *resource.Action
	// ID is the Audit-ID.
	ID string
	// Time is when the header had been read.
	Time time.Time
}

// Slow is the time from which on an event has latency annotations.
const Slow = 500 * time.Millisecond

// LatencyPrefix begins the latency annotations.
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

// codeClientGone is the code of a request whose client closed the connection before the
// response began, the same as in the access log.
const codeClientGone = 499

// Request is the audit of one request. Its methods are called on the request's goroutine
// unless they say otherwise.
type Request struct {
	auditor *Auditor
	config  audit.RequestAuditConfig
	action  *resource.Action
	arrived time.Time
	// Of the request as it arrived; handlers may change it.
	id, uri, userAgent string
	sources            []string
	header             http.Header // of the body
	// told: the request was refused, and its event is complete.
	told bool
	// long: bodies are not recorded. A client that accepts a stream of events may get
	// another response.
	long  bool
	began atomic.Bool // the response has begun

	as     *resource.Action // the impersonated user; nil: none
	ref    *auditapi.ObjectReference
	status *metav1.Status // further fields of the response status

	body     *recordedBody // of the request; nil: not recorded
	sent     []byte        // the body as the event has it; nil: none
	answered []byte        // the same of the response
	// answer records the body of the response, and answerHeader is its header; nil: not
	// recorded.
	answer       *recording
	answerHeader http.Header
	wanted       want
	code         int32 // of the response; 0: unknown yet

	mu          sync.Mutex // guards annotations
	annotations []string   // keys and values in turn
	room        [4]string  // for the first annotations
	upstream    atomic.Pointer[audit.AuditContext]
}

// Begin begins the audit of a request; nil if the policy asks for none. It may replace the
// body of the request by one that records. If it returns an error the request must be
// rejected with it.
func (a *Auditor) Begin(r *http.Request, in Arrival) (*Request, error) {
	q := a.open(r, in)
	if q == nil {
		return nil, nil
	}
	if !q.tell(auditapi.StageRequestReceived) {
		audit.ApiserverAuditDroppedCounter.WithContext(context.Background()).Inc()
		return nil, errNotStored
	}
	if q.records() && r.Body != nil && r.Body != http.NoBody {
		q.body = &recordedBody{ReadCloser: r.Body, length: r.ContentLength, recording: recording{budget: a.recorded.of(in.Action.User), limit: maxObject}}
		q.header = http.Header{"Content-Type": r.Header["Content-Type"], "Content-Encoding": r.Header["Content-Encoding"]}
		r.Body = q.body
	}
	return q, nil
}

// Refuse begins the audit of a request that is refused before its user is known; nil if
// the policy asks for none. Its only event is ResponseStarted, with this message.
func (a *Auditor) Refuse(r *http.Request, in Arrival, message string) *Request {
	q := a.open(r, in)
	if q != nil {
		q.told = true
		q.status = &metav1.Status{Message: message}
	}
	return q
}

// open evaluates the policy and copies what describes the request.
func (a *Auditor) open(r *http.Request, in Arrival) *Request {
	config := a.policy.EvaluatePolicyRule((*attributes)(in.Action))
	audit.ObservePolicyLevel(context.Background(), config.Level)
	if config.Level == auditapi.LevelNone {
		return nil
	}
	q := &Request{
		auditor: a, config: config, action: in.Action, arrived: in.Time, id: in.ID, uri: resource.RedactURI(r.URL.RequestURI()), userAgent: userAgentOf(r), sources: sourcesOf(r),
		long: in.Action.LongRunning() && !in.Action.Streams,
	}
	q.annotations = q.room[:0]
	return q
}

// records reports whether the event has bodies: those of resources, without streams.
func (q *Request) records() bool {
	return q.action.IsResource && !q.long && q.config.Level.GreaterOrEqual(auditapi.LevelRequest)
}

// Value returns upstream's audit context for its key, for the context of the request. Safe
// for concurrent use.
func (q *Request) Value(key any) any {
	if key == q.auditor.key {
		return q.upstreamContext()
	}
	return nil
}

// Impersonated sets the impersonated user.
func (q *Request) Impersonated(as *resource.Action) { q.as = as }

// Annotate adds annotations, keys and values in turn; the first of a key counts. Safe for
// concurrent use.
func (q *Request) Annotate(keysAndValues ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
next:
	for ; len(keysAndValues) >= 2; keysAndValues = keysAndValues[2:] {
		for i := 0; i < len(q.annotations); i += 2 {
			if q.annotations[i] == keysAndValues[0] {
				continue next
			}
		}
		q.annotations = append(q.annotations, keysAndValues[0], keysAndValues[1])
	}
}

// OnHeader is called before the header of the response is sent.
func (q *Request) OnHeader(h http.Header, code int) {
	if q.began.Swap(true) {
		return
	}
	q.long = q.long || code == http.StatusSwitchingProtocols || q.action.Streams && resource.IsEventStream(h)
	if q.long || q.told {
		q.code = int32(code)
		q.tell(auditapi.StageResponseStarted)
		return
	}
	if q.wanted = q.wants(code); q.wanted != wantNothing {
		q.answerHeader = http.Header{"Content-Type": h["Content-Type"], "Content-Encoding": h["Content-Encoding"]}
		q.answer = &recording{budget: q.auditor.recorded.of(q.action.User), limit: q.wanted.limit()}
	}
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

// creates reports whether the request creates an object whose name is not in the path.
func (q *Request) creates() bool {
	return q.action.IsResource && q.action.Verb == "create" && q.action.Name == ""
}

// OnWrite is called with each piece of the response's body.
func (q *Request) OnWrite(p []byte) {
	if q.answer != nil {
		q.answer.write(p)
	}
}

// Reading returns a reader of src that records the response's body.
func (q *Request) Reading(src io.Reader) io.Reader {
	if q.answer == nil {
		return src
	}
	return io.TeeReader(src, writerFunc(q.answer.write))
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// End ends the audit: code is the status that was sent, or 0, and cause the value with
// which the handler panicked.
func (q *Request) End(code int, cause any) {
	if q.told {
		q.refused(code)
		return
	}
	defer q.free()
	// What is sent from now on is not part of the response.
	began := q.began.Swap(true)
	if cause != nil && cause != http.ErrAbortHandler {
		q.code = http.StatusInternalServerError // whatever code was sent
		q.status = &metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
			Message: fmt.Sprintf("APIServer panic'd: %v", cause),
		}
		q.noteRequest()
		q.tell(auditapi.StagePanic)
		return
	}
	q.noteRequest()
	switch {
	case code == 0 && cause == nil:
		code = http.StatusOK
		q.status = &metav1.Status{Code: http.StatusOK, Status: metav1.StatusSuccess, Message: "Connection closed early"}
	case code == 0:
		code = codeClientGone
		q.status = &metav1.Status{Status: metav1.StatusFailure, Message: "The client was gone before the response began"}
	case cause != nil && !q.long:
		q.status = &metav1.Status{Status: metav1.StatusFailure, Message: "The response was cut off"}
	default:
		q.noteResponse()
	}
	q.code = int32(code)
	if q.long && !began {
		q.tell(auditapi.StageResponseStarted)
	}
	if took := time.Since(q.arrived); took > Slow {
		q.Annotate(LatencyPrefix+"total", took.String())
	}
	q.tell(auditapi.StageResponseComplete)
}

// refused sends the event of a refused request whose response was the one of its deadline.
func (q *Request) refused(code int) {
	if q.began.Swap(true) {
		return
	}
	if code == 0 {
		code = codeClientGone
	}
	q.code = int32(code)
	q.tell(auditapi.StageResponseStarted)
}

// free releases the recordings.
func (q *Request) free() {
	if q.body != nil {
		q.body.recording.free()
	}
	if q.answer != nil {
		q.answer.free()
	}
}
