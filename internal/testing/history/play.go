package history

import (
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

// aftermath is how long after a disturbance calls may still fail because of it:
// connections that it broke are found out one by one.
const aftermath = 5 * time.Second

// Run plays a history and fails the test with what went wrong.
func Run(t *testing.T, sys System, cfg Config) {
	t.Helper()
	report, err := Play(t.Context(), sys, cfg)
	if err != nil {
		t.Fatalf("seed %d, %d steps: %v", cfg.Seed, cfg.Steps, err)
	}
	t.Logf("seed %d: %s", cfg.Seed, report)
}

// play is one history as it is played.
type play struct {
	sys System
	cfg Config
	// moments orders the beginnings and ends of calls.
	moments atomic.Int64
	// seen is the newest revision that anybody has seen.
	seen atomic.Int64
	// compacted is the newest revision that history was forgotten up to.
	compacted atomic.Int64
	// upset is the newest revision that watches may have lost their place at.
	upset atomic.Int64
	// written counts the writes begun.
	written atomic.Int64
	// closing ends when the last write of each selection is known; then
	// watchers end once they have seen theirs.
	closing context.Context

	mu        sync.Mutex
	disturbed int       // disturbances that run
	calm      time.Time // end of the last one
	writes    []*write
	listings  []*listing
	gettings  []*getting
	chains    []*chain
	faults    []fault
	jumps     int // differences that were told in the place of events
}

// fault is something that went wrong, at a revision if that is known.
type fault struct {
	rev  int64
	key  resource.Key
	text string
}

// span is when a call was made.
type span struct {
	who, door string
	begin     int64
	end       int64
	at        time.Time
	// floor is the newest revision that anybody had seen before it began.
	floor int64
}

// Play plays a history. The error tells what went wrong, with an excerpt of the
// history.
func Play(ctx context.Context, sys System, cfg Config) (report string, err error) {
	cfg = cfg.withDefaults()
	p := &play{sys: sys, cfg: cfg}
	var closeDown context.CancelFunc
	p.closing, closeDown = context.WithCancel(context.Background())
	defer closeDown()
	p.run(ctx, closeDown)
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("play history: %w", err)
	}
	t, err := p.truth(ctx)
	if err != nil {
		return "", err
	}
	p.judge(t)
	if len(p.faults) > 0 {
		return "", errors.New(p.tell(t))
	}
	return p.summary(t), nil
}

// run has everybody do their work and returns when all have ended.
func (p *play) run(ctx context.Context, closeDown func()) {
	var working, watching sync.WaitGroup
	watchers := make([]*watcher, p.cfg.Watchers)
	for i := range watchers {
		watchers[i] = newWatcher(p, i)
		p.chains = append(p.chains, &watchers[i].chain)
		watching.Go(func() { watchers[i].run(ctx) })
	}
	for i := range p.cfg.Writers {
		w := &writer{play: p, n: i, name: fmt.Sprint("writer ", i), rnd: p.random(1, i), known: map[resource.Key]int64{}}
		working.Go(func() { w.run(ctx, p.cfg.Steps/p.cfg.Writers) })
	}
	for i := range p.cfg.Readers {
		r := &reader{play: p, name: fmt.Sprint("reader ", i), rnd: p.random(2, i)}
		working.Go(func() { r.run(ctx, p.cfg.Steps/p.cfg.Readers) })
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

// random is a source of decisions for one of a role.
func (p *play) random(role, n int) *rand.Rand {
	return rand.New(rand.NewPCG(p.cfg.Seed, uint64(role)<<32|uint64(n)))
}

// pause lets others go first, now and then: what is in memory would otherwise
// be written by one after the other.
func pause(rnd *rand.Rand) {
	if rnd.IntN(2) == 0 {
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond)
	}
}

// door picks one.
func (p *play) door(rnd *rand.Rand) *Door { return &p.sys.Doors[rnd.IntN(len(p.sys.Doors))] }

// favourite picks one, mostly the same for one of a role: while one door is
// shut, not everybody stands in front of it.
func (p *play) favourite(rnd *rand.Rand, n int) *Door {
	if rnd.IntN(4) == 0 {
		return p.door(rnd)
	}
	return &p.sys.Doors[n%len(p.sys.Doors)]
}

// start notes that a call begins.
func (p *play) start(who string, d *Door) span {
	floor := p.seen.Load()
	return span{who: who, door: d.Name, begin: p.moments.Add(1), at: time.Now(), floor: floor}
}

// finish notes that a call has ended; revs were seen by it.
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

// fault notes what went wrong. mu is not held.
func (p *play) fault(key resource.Key, rev int64, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fault{rev, key, fmt.Sprintf(format, args...)})
}

// failed judges an error that nothing but a disturbance explains. It waits a
// little, so that nobody is busy with failing.
func (p *play) failed(ctx context.Context, s *span, what string, err error) {
	p.mu.Lock()
	excused := p.disturbed > 0 || s.at.Before(p.calm.Add(aftermath))
	p.mu.Unlock()
	if p.sys.Late && (apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.HasStatusCause(err, resource.CauseResourceVersionTooLarge)) {
		excused = true
	}
	if !excused && ctx.Err() == nil {
		p.fault(resource.Key{}, 0, "%s, through %s: %s: %v", s.who, s.door, what, err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

// begin and end enclose a disturbance.
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

// mayExpire judges a 410 for a watch that had come to rev.
func (p *play) mayExpire(rev int64) bool { return p.sys.Forgetful || rev <= p.upset.Load() }

// definite reports whether an error says that nothing was written.
func definite(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }
