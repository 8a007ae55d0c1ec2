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

// askedKey is the key read to find out whether etcd is there. It need not exist, nor
// need it be allowed to read it.
const askedKey = "portico_pulse"

const (
	// lookEvery is the time between two looks at whether etcd has answered, while
	// anything is under way.
	lookEvery = 500 * time.Millisecond
	// patience is how many looks in a row find that etcd owes an answer and has
	// given none before it counts as silent: five seconds, which is longer than an
	// election takes, and shorter than clients wait. Looks are counted and not the
	// time, so that a process that was stopped or starved itself finds nothing out
	// about etcd.
	patience = 10
)

// silentError is of a request that was refused because etcd is silent, or given up
// because it fell silent. Nothing was written.
type silentError struct {
	since time.Time
	// sent says that it was under way.
	sent bool
}

func (e *silentError) Error() string {
	return "no answer since " + e.since.UTC().Format(time.RFC3339)
}

// GRPCStatus has the code of what was never sent (unsent.go).
func (e *silentError) GRPCStatus() *status.Status { return status.New(codes.Aborted, e.Error()) }

// refused reports whether a request was refused before it was sent.
func refused(err error) bool {
	var silent *silentError
	return errors.As(err, &silent) && !silent.sent
}

// pulse knows whether etcd answers. All requests of a client pass through it
// (carry), and while etcd is silent it refuses them at once: they would wait in
// vain, each for its whole time, and pile up.
//
//	       owes an answer, look after look ── patience ──► silent
//	answers ◄──────────── an answer, to anybody ─────────────┘
//
// An answer is one that takes a quorum, so that a cluster without one is as silent
// as an etcd that is gone. What takes long proves nothing: after the first look in
// vain etcd is asked for something small, by way of every member, and it is that
// answer that counts too. The question stays open while etcd is silent, so that
// the first sign of life ends it at once, and requests come back only then.
//
// When etcd falls silent, reads that are under way end. Transactions do not: what
// became of one is known only by its answer, which may yet come.
//
// Safe for concurrent use.
type pulse struct {
	ctx     context.Context // of the client
	ask     func(context.Context) error
	log     *slog.Logger
	refused func()

	now     atomic.Pointer[condition]
	pending atomic.Int64  // requests under way
	answers atomic.Uint64 // so far
	looking atomic.Bool   // the timer is set
	timer   *time.Timer

	mu     sync.Mutex
	missed int       // looks in vain, one after the other
	since  time.Time // when etcd has owed an answer, if missed is not 0; for people
	seen   uint64    // answers, at the last look
	asking bool
}

// condition is one of the two that etcd can be in, for as long as it lasts.
type condition struct {
	silent bool
	since  time.Time       // if it is silent
	ctx    context.Context // ends with the condition
	end    context.CancelCauseFunc
}

// newPulse returns the pulse of an etcd that answers; ctx is the client's. ask
// asks for askedKey, of whichever member answers. refused hears of every request
// that is refused.
func newPulse(ctx context.Context, log *slog.Logger, refused func(), ask func(context.Context) error) *pulse {
	p := &pulse{ctx: ctx, ask: ask, log: log, refused: refused}
	p.now.Store(p.condition(false, time.Time{}))
	p.looking.Store(true)
	p.timer = time.AfterFunc(lookEvery, p.look)
	return p
}

func (p *pulse) condition(silent bool, since time.Time) *condition {
	c := &condition{silent: silent, since: since}
	c.ctx, c.end = context.WithCancelCause(p.ctx)
	return c
}

// silent reports whether requests are refused.
func (p *pulse) silent() bool { return p.now.Load().silent }

// wait returns when etcd is not silent, or ctx ends.
func (p *pulse) wait(ctx context.Context) {
	if c := p.now.Load(); c.silent {
		select {
		case <-c.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// carry is the interceptor of all requests that have one answer.
func (p *pulse) carry(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !strings.HasPrefix(method, "/etcdserverpb.KV/") && !strings.HasPrefix(method, "/etcdserverpb.Lease/") {
		return invoke(ctx, method, req, reply, conn, opts...) // of one member, about itself
	}
	now, asking := p.now.Load(), asks(req)
	if now.silent && !asking {
		p.refused()
		return &silentError{since: now.since}
	}
	p.pending.Add(1)
	defer p.pending.Add(-1)
	p.watch()
	if !asking && harmless(req) {
		bound, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(now.ctx, func() { cancel(context.Cause(now.ctx)) })()
		ctx = bound
	}
	err := invoke(ctx, method, req, reply, conn, opts...)
	if proves(req, err) {
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

// asks reports whether a request is the question whether etcd is there.
func asks(req any) bool {
	r, ok := req.(*etcdserverpb.RangeRequest)
	return ok && string(r.Key) == askedKey
}

// harmless reports whether a request may be given up: it is a read, or grants a
// lease that nothing hangs on.
func harmless(req any) bool {
	switch req.(type) {
	case *etcdserverpb.RangeRequest, *etcdserverpb.LeaseGrantRequest:
		return true
	}
	return false
}

// proves reports whether what came of a request proves that a quorum of etcd is
// there: an answer does, though it be a refusal; not what one member says by
// itself, or that it has no quorum, nor what the transport says. Who may read is
// looked at after the quorum was asked, and who may write when that is carried out;
// but a write of somebody unknown is refused by the member that it comes to.
func proves(req any, err error) bool {
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

// answered notes that etcd has answered.
func (p *pulse) answered() {
	p.answers.Add(1)
	if !p.silent() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rise()
}

// rise notes that etcd has answered since the last look; mu is held.
func (p *pulse) rise() {
	p.missed, p.seen = 0, p.answers.Load()
	was := p.now.Load()
	if !was.silent {
		return
	}
	p.now.Store(p.condition(false, time.Time{}))
	was.end(nil)
	p.log.Info("etcd answers again, and requests go to it as before", "silentFor", time.Since(was.since).Round(100*time.Millisecond))
}

// watch has somebody look, from now on.
func (p *pulse) watch() {
	if !p.looking.Load() && p.looking.CompareAndSwap(false, true) {
		p.timer.Reset(lookEvery)
	}
}

// look is called by the timer, as long as anything is under way.
func (p *pulse) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	pending := p.pending.Load() > 0
	switch {
	case p.answers.Load() != p.seen:
		p.rise()
	case p.missed > 0, pending:
		if p.missed == 0 {
			p.since = time.Now().Add(-lookEvery)
		}
		p.missed++
		p.inquire()
	}
	if p.missed == patience {
		p.fall()
	}
	if p.missed > 0 || pending {
		p.timer.Reset(lookEvery)
		return
	}
	p.looking.Store(false)
	if p.pending.Load() > 0 {
		p.watch() // who came meanwhile may have found that somebody looks
	}
}

// inquire asks etcd whether it is there, unless that is being asked; mu is held.
func (p *pulse) inquire() {
	if p.asking {
		return
	}
	p.asking = true
	go func() {
		ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
		defer cancel()
		_ = p.ask(ctx) // carry has seen what came of it
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asking = false
	}()
}

// fall notes that etcd is silent; mu is held.
func (p *pulse) fall() {
	was := p.now.Load()
	p.now.Store(p.condition(true, p.since))
	was.end(&silentError{since: p.since, sent: true})
	p.log.Warn("etcd does not answer: what needs it is refused until it does, what is in memory is served. Check that it runs, has a leader and can be reached",
		"since", p.since)
}

// askAll asks one member after the other, until one answers.
func (c *Client) askAll(ctx context.Context) error {
	members := len(c.etcd.Endpoints())
	// With a budget of its own, for the question must not hang on one member.
	_, err := hedged(ctx, 2*members-1, hedgeRevision, newHedgeBudget(c.metrics.hedges), func(ctx context.Context) (*clientv3.GetResponse, error) {
		return c.etcd.Get(ctx, askedKey)
	})
	return err
}
