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

// Arrival is what is known of a request when it arrives.
type Arrival struct {
	// Action is the request as its sender makes it, before impersonation; its User
	// is nil if nobody is known.
	Action *resource.Action
	// ID is its Audit-ID.
	ID string
	// Time is when its header had been read.
	Time time.Time
}

// Slow is how long a request may take without a word about it.
const Slow = 500 * time.Millisecond

// LatencyPrefix begins the annotations that say where the time of a slow request
// went.
const LatencyPrefix = "apiserver.latency.k8s.io/"

// want is what the body of a response is recorded for.
type want uint8

const (
	wantNothing want = iota
	wantObject       // it goes into the event
	wantStatus       // if it is one, it does
	wantName         // that of an object that was created
	wantIssued       // which token was issued
)

// limit is how large a body may be for that.
func (w want) limit() int {
	return [...]int{wantObject: maxObject, wantStatus: maxStatus, wantName: maxObject, wantIssued: maxObject}[w]
}

// codeNobody is the code of a request whose client closed the connection before the
// response began, the same as in the access log.
const codeNobody = 499

// Request is the audit of one request. Its methods are for the goroutine of the
// request, unless they say otherwise.
type Request struct {
	auditor *Auditor
	config  audit.RequestAuditConfig
	action  *resource.Action
	arrived time.Time
	// What it said of itself when it arrived: what comes below may change it.
	id, uri, userAgent string
	sources            []string
	header             http.Header // of the body
	// told: all there is to say has been said.
	told bool
	// long: its bodies are not recorded. That the client takes a stream of events
	// does not say that the answer is one.
	long  bool
	began atomic.Bool // the response has

	as     *resource.Action // as whom it goes on; nil: as who it is
	ref    *auditapi.ObjectReference
	status *metav1.Status // what is known besides

	body     *recordedBody // of the request; nil: it is not recorded
	sent     []byte        // the body, as the event has it; nil: it has none
	answered []byte        // the same of the response
	// answer is the body of the response, and answerHeader its header; nil: it is
	// not recorded.
	answer       *recording
	answerHeader http.Header
	wanted       want
	code         int32 // of the response; 0: not known yet

	mu          sync.Mutex // guards annotations
	annotations []string   // key, value, key, value
	room        [4]string  // for the first annotations
	upstream    atomic.Pointer[audit.AuditContext]
}

// Begin begins the audit of a request that is about to be handled; nil if the
// policy wants none. It may put another body into the request, which records what
// is read. The error is to be answered: the request must not go on.
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

// Refuse begins the audit of a request that is refused before it is known who
// makes it; nil if the policy wants none. Its only event is that of the response
// that begins, with this message.
func (a *Auditor) Refuse(r *http.Request, in Arrival, message string) *Request {
	q := a.open(r, in)
	if q != nil {
		q.told = true
		q.status = &metav1.Status{Message: message}
	}
	return q
}

// open asks the policy and takes down what the request says of itself.
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

// records reports whether bodies belong into the event: streams do not, nor what
// is no resource.
func (q *Request) records() bool {
	return q.action.IsResource && !q.long && q.config.Level.GreaterOrEqual(auditapi.LevelRequest)
}

// Value has the context of the request show upstream's audit context. Safe for
// concurrent use.
func (q *Request) Value(key any) any {
	if key == q.auditor.key {
		return q.upstreamContext()
	}
	return nil
}

// Impersonated notes as whom the request goes on.
func (q *Request) Impersonated(as *resource.Action) { q.as = as }

// Annotate adds annotations, each a key and its value; the first of a key counts.
// Safe for concurrent use.
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

// OnHeader is told that the response begins: its header is about to be sent.
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

// wants says what the body of a response with this code is recorded for.
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

// creates reports whether the request makes an object that it does not name in
// its path.
func (q *Request) creates() bool {
	return q.action.IsResource && q.action.Verb == "create" && q.action.Name == ""
}

// OnWrite is told of a part of the response's body.
func (q *Request) OnWrite(p []byte) {
	if q.answer != nil {
		q.answer.write(p)
	}
}

// Reading returns a response's body as it is read from src, of which it is told.
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

// End is told that the request is over: the code that was sent, 0 if none was,
// and what the handler panicked with, if it did.
func (q *Request) End(code int, cause any) {
	if q.told {
		q.refused(code)
		return
	}
	defer q.free()
	// What is sent from now on is the server's, not the response's.
	began := q.began.Swap(true)
	if cause != nil && cause != http.ErrAbortHandler {
		q.code = http.StatusInternalServerError // whatever the response began with
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
		code = codeNobody
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

// refused tells of a request that was refused when its response had begun, which
// was its deadline's: nobody has told of that one.
func (q *Request) refused(code int) {
	if q.began.Swap(true) {
		return
	}
	if code == 0 {
		code = codeNobody
	}
	q.code = int32(code)
	q.tell(auditapi.StageResponseStarted)
}

// free has the recordings hold nothing any more.
func (q *Request) free() {
	if q.body != nil {
		q.body.recording.free()
	}
	if q.answer != nil {
		q.answer.free()
	}
}
