package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// aftermath is how long after a disturbance calls may fail because of it: broken
// connections are noticed one by one.
const aftermath = 5 * time.Second

// Run plays a history and fails the test with the faults found.
func Run(t *testing.T, sys System, cfg Config) {
	t.Helper()
	if err := Play(t.Context(), sys, cfg); err != nil {
		t.Fatalf("seed %d, %d steps: %v", cfg.Seed, cfg.Steps, err)
	}
}

// play is one history in progress.
type play struct {
	sys System
	cfg Config
	// moments orders the beginnings and ends of calls.
	moments atomic.Int64
	// seen is the newest revision in any response.
	seen atomic.Int64
	// compacted is the newest revision up to which history was compacted.
	compacted atomic.Int64
	// upset is the newest revision at which watches may have expired.
	upset atomic.Int64
	// written counts started writes.
	written atomic.Int64
	// closing ends when the last write of each selection is known; then watchers end when
	// they have its event.
	closing context.Context
	// over means that the disturbances that are made in turn have been made.
	over atomic.Bool

	mu        sync.Mutex
	disturbed int       // disturbances that run
	calm      time.Time // end of the last one
	writes    []*write
	listings  []*listing
	gettings  []*getting
	chains    []*chain
	faults    []fault
}

// fault is an error that was found, at a revision if that is known.
type fault struct {
	rev  int64
	key  resource.Key
	text string
}

// span is the time of a call.
type span struct {
	client, door string
	begin        int64
	end          int64
	at           time.Time
	// floor is the newest revision in any response before the call.
	floor int64
}

// Play plays a history. The error describes the faults, with an excerpt of the history.
func Play(ctx context.Context, sys System, cfg Config) error {
	cfg.Patience = cmp.Or(cfg.Patience, 30*time.Second)
	p := &play{sys: sys, cfg: cfg}
	var closeDown context.CancelFunc
	p.closing, closeDown = context.WithCancel(context.Background())
	defer closeDown()
	p.run(ctx, closeDown)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("play history: %w", err)
	}
	t, err := p.truth(ctx)
	if err != nil {
		return err
	}
	p.judge(t)
	if len(p.faults) > 0 {
		return errors.New(p.report(t))
	}
	return nil
}

// run starts the clients and returns when all have ended.
func (p *play) run(ctx context.Context, closeDown func()) {
	var working, watching sync.WaitGroup
	watchers := make([]*watcher, Watchers)
	for i := range watchers {
		watchers[i] = newWatcher(p, i)
		p.chains = append(p.chains, &watchers[i].chain)
		watching.Go(func() { watchers[i].run(ctx) })
	}
	for i := range writers {
		w := &writer{play: p, n: i, name: fmt.Sprint("writer ", i), rnd: p.random(1, i), known: map[resource.Key]int64{}}
		working.Go(func() { w.run(ctx, p.cfg.Steps/writers) })
	}
	for i := range readers {
		r := &reader{play: p, name: fmt.Sprint("reader ", i), rnd: p.random(2, i)}
		working.Go(func() { r.run(ctx, p.cfg.Steps/readers) })
	}
	working.Go(func() { p.disturb(ctx, p.random(3, 0)) })
	working.Wait()
	last := &writer{play: p, name: "last writer", rnd: p.random(4, 0), known: map[resource.Key]int64{}}
	for _, w := range watchers {
		w.goal = last.satisfy(ctx, w.sel)
	}
	closeDown()
	watching.Wait()
	r := &reader{play: p, name: "last reader", rnd: p.random(5, 0)}
	r.readAll(ctx)
}

// random returns a client's source of random decisions.
func (p *play) random(role, n int) *rand.Rand {
	return rand.New(rand.NewPCG(p.cfg.Seed, uint64(role)<<32|uint64(n)))
}

// pause sleeps at random.
func (p *play) pause(rnd *rand.Rand) {
	switch {
	case p.cfg.Pause > 0:
		time.Sleep(time.Duration(rnd.Int64N(int64(2 * p.cfg.Pause))))
	case rnd.IntN(2) == 0:
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond)
	}
}

// working reports whether a client that has made some of its steps makes another one.
func (p *play) working(ctx context.Context, made, steps int) bool {
	if p.cfg.InTurn {
		return ctx.Err() == nil && !p.over.Load()
	}
	return ctx.Err() == nil && made < steps
}

// door returns a random door.
func (p *play) door(rnd *rand.Rand) *Door { return &p.sys.Doors[rnd.IntN(len(p.sys.Doors))] }

// favourite returns a door, mostly the same for one client: while one door fails, other
// clients use others.
func (p *play) favourite(rnd *rand.Rand, n int) *Door {
	if rnd.IntN(4) == 0 {
		return p.door(rnd)
	}
	return &p.sys.Doors[n%len(p.sys.Doors)]
}

// start records the beginning of a call.
func (p *play) start(client string, d *Door) span {
	floor := p.seen.Load()
	return span{client: client, door: d.Name, begin: p.moments.Add(1), at: time.Now(), floor: floor}
}

// finish records the end of a call, and the revisions that it has shown.
func (p *play) finish(s *span, revs ...int64) {
	s.end = p.moments.Add(1)
	p.see(revs...)
}

func (p *play) see(revs ...int64) { raise(&p.seen, revs...) }

// raise makes v at least each of revs.
func raise(v *atomic.Int64, revs ...int64) {
	for _, rev := range revs {
		for old := v.Load(); rev > old && !v.CompareAndSwap(old, rev); old = v.Load() {
		}
	}
}

// fault records a fault. The caller does not hold mu.
func (p *play) fault(key resource.Key, rev int64, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fault{rev, key, fmt.Sprintf(format, args...)})
}

// failed records an error unless a disturbance explains it. It waits a little, so that
// clients do not fail in a busy loop.
func (p *play) failed(ctx context.Context, s *span, what string, err error) {
	p.mu.Lock()
	excused := p.disturbed > 0 || s.at.Before(p.calm.Add(aftermath))
	p.mu.Unlock()
	if p.sys.Late && (apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.HasStatusCause(err, resource.CauseResourceVersionTooLarge)) {
		excused = true
	}
	if !excused && ctx.Err() == nil {
		p.fault(resource.Key{}, 0, "%s, through %s: %s: %v", s.client, s.door, what, err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

// beginDisturbance and endDisturbance enclose a disturbance.
func (p *play) beginDisturbance() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disturbed++
	p.upset.Store(math.MaxInt64)
}

func (p *play) endDisturbance(rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disturbed--
	p.calm = time.Now()
	p.upset.Store(rev)
}

// mayExpire reports whether a watch at rev may get a 410.
func (p *play) mayExpire(rev int64) bool { return p.sys.Forgetful || rev <= p.upset.Load() }

// definite reports whether an error means that nothing was written.
func definite(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }
