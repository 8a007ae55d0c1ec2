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
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// askedKey is the key that probes read. It need not exist, nor be readable for this
// client.
const askedKey = "portico_pulse"

const (
	// lookEvery is the time between two checks whether etcd has answered, while requests
	// are in progress.
	lookEvery = 500 * time.Millisecond
	// patience is how many checks in a row find that etcd owes an answer before it counts
	// as silent: five seconds, which is longer than an election takes and shorter than
	// clients wait. Checks are counted instead of time, so that a process that was itself
	// stopped or starved does not conclude anything about etcd.
	patience = 10
)

// silentError is the error of a request that was rejected because etcd is silent, or
// canceled because it became silent. Nothing was written.
type silentError struct {
	since time.Time
	// sent says that the request was in progress.
	sent bool
}

func (e *silentError) Error() string {
	return "no answer since " + e.since.UTC().Format(time.RFC3339)
}

// GRPCStatus has the code of a request that was never sent (unsent.go).
func (e *silentError) GRPCStatus() *status.Status { return status.New(codes.Aborted, e.Error()) }

// refused reports whether a request was rejected before it was sent.
func refused(err error) bool {
	var silent *silentError
	return errors.As(err, &silent) && !silent.sent
}

// breaker is a circuit breaker for all requests of a client. While etcd is silent it
// rejects them at once: each would wait for its whole deadline, and they would pile up.
//
//	         answers owed at check after check ── patience ──► silent (open)
//	closed ◄──────────────── an answer to any request ──────────────┘
//
// Only an answer that needs a quorum counts, so that a cluster without one is as silent as
// an etcd that is gone. A slow request says nothing: after the first check without an
// answer a probe reads one small key from one member after the other, and its answer
// counts, too. Probes go on while etcd is silent, so that its first answer closes the
// breaker.
//
// When etcd becomes silent, reads in progress end. Transactions do not: only the answer
// tells the outcome of one, and it may still come.
//
// Safe for concurrent use.
type breaker struct {
	ctx     context.Context // of the client
	probe   func(context.Context) error
	log     *slog.Logger
	refused func()

	now     atomic.Pointer[breakerState]
	pending atomic.Int64  // requests in progress
	answers atomic.Uint64 // so far
	looking atomic.Bool   // the timer is set
	timer   *time.Timer

	mu      sync.Mutex
	missed  int       // consecutive checks without an answer
	since   time.Time // since when etcd owes an answer, if missed is not 0; for messages
	seen    uint64    // answers at the last check
	probing bool
}

// breakerState is open (silent) or closed, for as long as that lasts.
type breakerState struct {
	silent bool
	since  time.Time       // if silent
	ctx    context.Context // ends with the state
	end    context.CancelCauseFunc
}

// newBreaker returns a closed breaker; ctx is the client's. probe reads askedKey from any
// member. refused is called for every rejected request.
func newBreaker(ctx context.Context, log *slog.Logger, refused func(), probe func(context.Context) error) *breaker {
	p := &breaker{ctx: ctx, probe: probe, log: log, refused: refused}
	p.now.Store(p.state(false, time.Time{}))
	p.looking.Store(true)
	p.timer = time.AfterFunc(lookEvery, p.look)
	return p
}

func (p *breaker) state(silent bool, since time.Time) *breakerState {
	c := &breakerState{silent: silent, since: since}
	c.ctx, c.end = context.WithCancelCause(p.ctx)
	return c
}

// silent reports whether requests are refused.
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

// intercept is the interceptor of all unary requests.
func (p *breaker) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !strings.HasPrefix(method, "/etcdserverpb.KV/") && !strings.HasPrefix(method, "/etcdserverpb.Lease/") {
		return invoke(ctx, method, req, reply, conn, opts...) // about one member
	}
	now, probing := p.now.Load(), isProbe(req)
	if now.silent && !probing {
		p.refused()
		return &silentError{since: now.since}
	}
	p.pending.Add(1)
	defer p.pending.Add(-1)
	p.watch()
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
		p.refused()
		return silent
	}
	return err
}

// isProbe reports whether a request is a probe.
func isProbe(req any) bool {
	r, ok := req.(*etcdserverpb.RangeRequest)
	return ok && string(r.Key) == askedKey
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

// isAnswer reports whether the result of a request shows that etcd has a quorum: an answer
// does, also a refusal; what one member says by itself, that it has no quorum, or an error
// of the transport does not. Permission to read is checked after the quorum was asked, and
// permission to write when the write is applied; but a write of an unknown user is refused
// by the member that receives it.
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

// watch starts the checks.
func (p *breaker) watch() {
	if !p.looking.Load() && p.looking.CompareAndSwap(false, true) {
		p.timer.Reset(lookEvery)
	}
}

// look is called by the timer while requests are in progress.
func (p *breaker) look() {
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
			p.since = time.Now().Add(-lookEvery)
		}
		p.missed++
		p.startProbe()
	}
	if p.missed == patience {
		p.open()
	}
	if p.missed > 0 || pending {
		p.timer.Reset(lookEvery)
		return
	}
	p.looking.Store(false)
	if p.pending.Load() > 0 {
		p.watch() // a request that began meanwhile may have found looking set
	}
}

// startProbe probes etcd, unless a probe is in progress; mu is held.
func (p *breaker) startProbe() {
	if p.probing {
		return
	}
	p.probing = true
	go func() {
		ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
		defer cancel()
		_ = p.probe(ctx) // intercept has seen the result
		p.mu.Lock()
		defer p.mu.Unlock()
		p.probing = false
	}()
}

// open opens the breaker; mu is held.
func (p *breaker) open() {
	was := p.now.Load()
	p.now.Store(p.state(true, p.since))
	was.end(&silentError{since: p.since, sent: true})
	p.log.Warn("etcd does not answer: requests that need it are rejected, requests from memory are served. Check that etcd runs, has a leader and can be reached",
		"since", p.since)
}

// probeMembers reads askedKey from one member after the other until one answers.
func (c *Client) probeMembers(ctx context.Context) error {
	members := len(c.etcd.Endpoints())
	// With its own budget, because a probe must not depend on one member.
	_, err := hedged(ctx, 2*members-1, hedgeRevision, newHedgeBudget(c.metrics.hedges), func(ctx context.Context) (*clientv3.GetResponse, error) {
		return c.etcd.Get(ctx, askedKey)
	})
	return err
}
