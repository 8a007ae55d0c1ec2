package flow

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/apiserver/pkg/util/flowcontrol/request"

	"portico/resource"
	"portico/resource/serve/filter"
)

// Admit implements filter.FlowControl. Upstream's engine holds the seats of a request while a
// function of its runs; that function runs beside the request and waits for Release, so that
// the seats can be released before the request ends.
func (e *engine) Admit(r *http.Request, a *resource.Action) filter.Admission {
	q := &admission{engine: e, request: r, info: requestInfo(a), mutating: a.Mutating(), decided: make(chan struct{}), released: make(chan struct{}), handled: make(chan struct{})}
	go q.handle(digest(a, q.info))
	<-q.decided
	if q.panicked != nil {
		panic(q.panicked)
	}
	out := filter.Admission{Schema: string(q.schema.UID), Level: string(q.level.UID), Limited: limited(q.level)}
	if !q.runs {
		e.dropped.RecordDroppedRequest(q.level.Name)
		out.RetryAfter = int(e.dropped.GetRetryAfter(q.level.Name))
		return out
	}
	if q.info.Verb == "watch" {
		q.forget = e.control.RegisterWatch(q.withInfo())
	}
	out.Seats = q
	return out
}

// errClassified ends Classify in upstream's engine.
var errClassified = errors.New("the request is classified")

// Classify implements filter.FlowControl. Upstream's engine classifies a request only to queue it
// then: between both a panic ends it, when it holds nothing but a read lock, which it releases. It
// takes 8 µs (BenchmarkClassify).
func (e *engine) Classify(a *resource.Action) (level string) {
	defer func() {
		if cause := recover(); cause != nil && cause != errClassified {
			panic(cause)
		}
	}()
	found := func(_ *flowv1.FlowSchema, l *flowv1.PriorityLevelConfiguration, _ string) {
		level = limited(l)
		panic(errClassified)
	}
	e.control.Handle(context.Background(), digest(a, requestInfo(a)), found, nil, nil, nil)
	return level
}

// limited returns the name of a level that limits requests; "" of one that does not.
func limited(l *flowv1.PriorityLevelConfiguration) string {
	if l.Spec.Type == flowv1.PriorityLevelEnablementExempt {
		return ""
	}
	return l.Name
}

// digest is a request in the form of upstream's engine.
func digest(a *resource.Action, info *apirequest.RequestInfo) flowcontrol.RequestDigest {
	return flowcontrol.RequestDigest{RequestInfo: info, User: userInfo(a.User)}
}

// userInfo is the user in the form of upstream's engine. Portico's own processes count as
// system:masters, which is exempt.
func userInfo(u *resource.User) user.Info {
	groups := u.Groups
	if u.Unlimited() && !slices.Contains(groups, resource.GroupMasters) {
		groups = append(slices.Clone(groups), resource.GroupMasters)
	}
	return &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: groups, Extra: u.Extra}
}

// admission is one request in the engine. decided guards the fields before it.
type admission struct {
	engine   *engine
	request  *http.Request
	info     *apirequest.RequestInfo
	mutating bool

	schema   *flowv1.FlowSchema
	level    *flowv1.PriorityLevelConfiguration
	runs     bool
	panicked any
	decided  chan struct{}

	release  sync.Once
	released chan struct{}
	handled  chan struct{} // closed when handle returns
	forget   func()        // called at the end of a watch; nil for other requests
}

// Release implements filter.Seats.
func (q *admission) Release() { q.release.Do(func() { close(q.released) }) }

// End implements filter.Seats. It returns after handle, when the seats are free for the next request of
// a client that has the whole response.
func (q *admission) End() {
	q.Release()
	<-q.handled
	if q.forget != nil {
		q.forget()
		q.forget = nil
	}
}

// handle passes the request through upstream's engine. It returns when the request is refused,
// or its seats are released.
func (q *admission) handle(digest flowcontrol.RequestDigest) {
	defer close(q.handled)
	defer func() {
		cause := recover()
		switch {
		case q.runs && cause != nil:
			q.engine.log.Error("priority and fairness panicked", "cause", cause, "stack", string(debug.Stack()))
		case !q.runs:
			q.panicked = cause
			close(q.decided)
		}
	}()
	ctx, cancel := q.engine.waitContext(q.request.Context())
	defer cancel()
	q.engine.control.Handle(ctx, digest, q.classified, q.work, q.waits, q.run)
}

// waitContext returns a context that ends when the request has waited a quarter of its time.
func (e *engine) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := e.wait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(time.Until(deadline)/4, maxWait)
	}
	return context.WithTimeout(ctx, wait)
}

func (q *admission) classified(s *flowv1.FlowSchema, l *flowv1.PriorityLevelConfiguration, _ string) {
	q.schema, q.level = s, l
}

// work estimates the seats of the request.
func (q *admission) work() request.WorkEstimate {
	estimate := request.WorkEstimate{InitialSeats: 1}
	switch q.info.Verb {
	case "list", "watch", "create", "update", "patch", "delete":
		estimate = q.engine.estimate(q.withInfo(), q.schema.Name, q.level.Name)
	}
	metrics.ObserveWorkEstimatedSeats(q.level.Name, q.schema.Name, estimate.MaxSeats())
	return estimate
}

// withInfo returns the request with what upstream's estimators read of its context.
func (q *admission) withInfo() *http.Request {
	return q.request.WithContext(apirequest.WithRequestInfo(q.request.Context(), q.info))
}

// waits counts the request while it waits.
func (q *admission) waits(begins bool) {
	gauge := metrics.GetWaitingReadonlyConcurrency()
	if q.mutating {
		gauge = metrics.GetWaitingMutatingConcurrency()
	}
	if begins {
		gauge.Inc()
	} else {
		gauge.Dec()
	}
}

// run holds the seats until they are released.
func (q *admission) run() {
	gauge := metrics.GetExecutingReadonlyConcurrency()
	if q.mutating {
		gauge = metrics.GetExecutingMutatingConcurrency()
	}
	gauge.Inc()
	defer gauge.Dec()
	q.runs = true
	close(q.decided)
	<-q.released
}
