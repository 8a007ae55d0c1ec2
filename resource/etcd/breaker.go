package etcd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// checkEvery is the time between two checks whether etcd has answered, while requests
	// are in progress.
	checkEvery = 500 * time.Millisecond
	// silentChecks is the number of consecutive checks without an answer after which etcd
	// counts as silent: after five seconds, longer than an election takes and shorter than
	// clients wait. Checks are counted instead of time, so that a process that was itself
	// stopped or starved concludes nothing about etcd.
	silentChecks = 10
	// maxProbes is the number of probes in progress. The balancer sends each to the next
	// member.
	maxProbes = 4
)

// silentError is the error of a request that was rejected because etcd is silent, or
// canceled because it became silent. Nothing was written.
type silentError struct {
	since time.Time
	// sent is set if the request was in progress.
	sent bool
}

func (e *silentError) Error() string {
	return "no answer since " + e.since.UTC().Format(time.RFC3339)
}

// GRPCStatus has the code of a request that was never sent (errors.go).
func (e *silentError) GRPCStatus() *status.Status { return status.New(codes.Aborted, e.Error()) }

// rejected reports whether a request was rejected before it was sent.
func rejected(err error) bool {
	var silent *silentError
	return errors.As(err, &silent) && !silent.sent
}

// breaker is a circuit breaker for all requests of a client. While etcd is silent it
// rejects them at once: each would wait for its whole deadline, and they would pile up.
//
//	         silentChecks checks without an answer ───────► silent (open)
//	closed ◄──────────── an answer to any request ────────────┘
//
// Only an answer that needs a quorum counts, so a cluster without one is as silent as an
// etcd that is gone. A slow request alone does not open the breaker: from the first check
// without an answer, probes read one small key, and their answers count, too. Probes
// continue while etcd is silent, so that its first answer closes the breaker.
//
// When etcd becomes silent, reads in progress end. Transactions do not: only the answer
// has their outcome, and it may still arrive.
//
// Safe for concurrent use.
type breaker struct {
	ctx      context.Context // of the client
	every    time.Duration   // between two checks
	probe    func(context.Context) error
	diagnose func(context.Context) error // for the log
	log      *slog.Logger
	rejected func()

	now      atomic.Pointer[breakerState]
	pending  atomic.Int64  // requests in progress
	answers  atomic.Uint64 // so far
	checking atomic.Bool   // the timer is set
	timer    *time.Timer

	mu     sync.Mutex
	missed int       // consecutive checks without an answer
	since  time.Time // time of the last answer, for messages; set if missed is not 0
	seen   uint64    // answers at the last check
	probes int       // in progress
}

// breakerState is one period in which the breaker is open (silent) or closed.
type breakerState struct {
	silent bool
	since  time.Time       // if silent
	ctx    context.Context // ends with the period
	end    context.CancelCauseFunc
}

// newBreaker returns a closed breaker that checks at the given interval; ctx is the client's.
// probe makes a linearizable read, diagnose says why etcd cannot be used. rejected is called for every request that is rejected or
// canceled.
func newBreaker(ctx context.Context, every time.Duration, log *slog.Logger, rejected func(), probe, diagnose func(context.Context) error) *breaker {
	p := &breaker{ctx: ctx, every: every, probe: probe, diagnose: diagnose, log: log, rejected: rejected}
	p.now.Store(p.state(false, time.Time{}))
	p.checking.Store(true)
	p.timer = time.AfterFunc(every, p.check)
	return p
}

func (p *breaker) state(silent bool, since time.Time) *breakerState {
	c := &breakerState{silent: silent, since: since}
	c.ctx, c.end = context.WithCancelCause(p.ctx)
	return c
}

// silent reports whether requests are rejected.
func (p *breaker) silent() bool { return p.now.Load().silent }

// wait returns when etcd is not silent or ctx ends.
func (p *breaker) wait(ctx context.Context) {
	if c := p.now.Load(); c.silent {
		select {
		case <-c.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// probeKey is the context key of probes.
type probeKey struct{}

// intercept is the interceptor of all unary requests.
func (p *breaker) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !strings.HasPrefix(method, "/etcdserverpb.KV/") && !strings.HasPrefix(method, "/etcdserverpb.Lease/") {
		return invoke(ctx, method, req, reply, conn, opts...) // about one member
	}
	now, probing := p.now.Load(), ctx.Value(probeKey{}) != nil
	if now.silent && !probing {
		p.rejected()
		return &silentError{since: now.since}
	}
	p.pending.Add(1)
	defer p.pending.Add(-1)
	p.startChecks()
	if !probing && cancelable(req) {
		bound, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(now.ctx, func() { cancel(context.Cause(now.ctx)) })()
		ctx = bound
	}
	err := invoke(ctx, method, req, reply, conn, opts...)
	if isAnswer(req, err) {
		p.answered()
		return err
	}
	var silent *silentError
	if err != nil && errors.As(context.Cause(ctx), &silent) {
		p.rejected()
		return silent
	}
	return err
}

// cancelable reports whether a request may be canceled: it is a read, or grants a lease
// that is not used yet.
func cancelable(req any) bool {
	switch req.(type) {
	case *etcdserverpb.RangeRequest, *etcdserverpb.LeaseGrantRequest:
		return true
	}
	return false
}

// isAnswer reports whether the result of a request shows that etcd has a quorum. A response
// does, and most errors do; what a member returns without the others, such as the error
// that there is no quorum, and errors of the transport do not. Permission to read is checked
// after the quorum was asked, and permission to write when the write is applied; but a write
// of an unknown user is rejected by the member that receives it.
func isAnswer(req any, err error) bool {
	r, read := req.(*etcdserverpb.RangeRequest)
	if read && r.Serializable {
		return false
	}
	if err == nil {
		return true
	}
	if errors.Is(err, rpctypes.ErrGRPCNotSupportedForLearner) {
		return false
	}
	switch errorCode(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange, codes.ResourceExhausted,
		codes.PermissionDenied, codes.DataLoss:
		return true
	case codes.Unauthenticated:
		return read
	}
	return false
}

// answered counts an answer of etcd.
func (p *breaker) answered() {
	p.answers.Add(1)
	if !p.silent() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close()
}

// close closes the breaker after an answer; mu is held.
func (p *breaker) close() {
	p.missed, p.seen = 0, p.answers.Load()
	was := p.now.Load()
	if !was.silent {
		return
	}
	p.now.Store(p.state(false, time.Time{}))
	was.end(nil)
	p.log.Info("etcd answers again", "silentFor", time.Since(was.since).Round(100*time.Millisecond))
}

// startChecks sets the timer of the checks.
func (p *breaker) startChecks() {
	if !p.checking.Load() && p.checking.CompareAndSwap(false, true) {
		p.timer.Reset(p.every)
	}
}

// check is called by the timer while requests are in progress.
func (p *breaker) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	pending := p.pending.Load() > 0
	switch {
	case p.answers.Load() != p.seen:
		p.close()
	case p.missed > 0, pending:
		if p.missed == 0 {
			p.since = time.Now().Add(-p.every)
		}
		p.missed++
		p.startProbe()
	}
	if p.missed == silentChecks {
		p.open()
	}
	if p.missed > 0 || pending {
		p.timer.Reset(p.every)
		return
	}
	p.checking.Store(false)
	if p.pending.Load() > 0 {
		p.startChecks() // a request that began meanwhile may have seen checking set
	}
}

// startProbe starts a probe unless maxProbes are in progress; mu is held.
func (p *breaker) startProbe() {
	if p.probes == maxProbes {
		return
	}
	p.probes++
	go func() {
		ctx, cancel := context.WithTimeout(context.WithValue(p.ctx, probeKey{}, true), callTimeout)
		defer cancel()
		_ = p.probe(ctx) // intercept has seen the result
		p.mu.Lock()
		defer p.mu.Unlock()
		p.probes--
	}()
}

// open opens the breaker; mu is held.
func (p *breaker) open() {
	was := p.now.Load()
	p.now.Store(p.state(true, p.since))
	was.end(&silentError{since: p.since, sent: true})
	since := p.since
	go func() {
		p.log.Warn("etcd does not answer: requests that need it are rejected, requests from memory are served", "since", since, "cause", p.diagnose(p.ctx))
	}()
}

// probe makes a linearizable read for the breaker.
func (c *Client) probe(ctx context.Context) error {
	_, err := c.etcd.Get(ctx, revisionKey)
	return err
}
