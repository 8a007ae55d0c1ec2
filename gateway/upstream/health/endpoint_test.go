package health

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
)

const (
	base = 30 * time.Second
	most = 300 * time.Second
)

var (
	errBroken = errors.New("connection reset")
	passes    = availability.Verdict{Known: true, Healthy: true}
	fails     = availability.Verdict{Known: true, Err: errBroken}
)

// clock is an Endpoint with its own time.
type clock struct {
	Endpoint
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1000, 0)} }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// eject ejects the endpoint for its answers, waits for the end and fails unless it
// lasted some seconds and at most a tenth of base more.
func (c *clock) eject(t *testing.T, what string, seconds int) {
	t.Helper()
	c.Eject(c.now, base, most, false, errBroken)
	least := time.Duration(seconds) * time.Second
	if got := c.Next(c.now).Sub(c.now); got < least || got > least+base/10 {
		t.Errorf("%s: ejected for %v, want %v and a little more", what, got, least)
	}
	c.now = c.Next(c.now)
	if c.Ejected(c.now) || !c.Next(c.now).IsZero() {
		t.Errorf("%s: it does not end", what)
	}
}

// Each ejection is longer than the last, up to a bound, and every ten seconds without
// one make one less count.
func TestEjectionsGrowAndAreForgiven(t *testing.T) {
	t.Parallel()
	c := newClock()
	for i := range 12 {
		c.eject(t, fmt.Sprint("ejection ", i+1), min(30*(i+1), 300))
	}
	c.pass(81 * time.Second)
	c.eject(t, "eight of ten are forgiven", 90)
	c.pass(9 * time.Second)
	c.eject(t, "none is forgiven", 120)
	c.pass(21 * time.Second)
	c.eject(t, "two are forgiven", 90)
	c.pass(time.Hour)
	lengths := map[time.Duration]bool{}
	for range 5 {
		began := c.now
		c.eject(t, "all are forgiven", 30)
		lengths[c.now.Sub(began)] = true
		c.pass(time.Hour)
	}
	if len(lengths) == 1 {
		t.Errorf("all ejections last %v", lengths)
	}
}

// A passed check ends an ejection for connections, unless another was lately, and none
// for answers. An ejection that was ended counts, and is over when it was ended.
func TestPassedCheckEndsEjection(t *testing.T) {
	t.Parallel()
	c := newClock()
	c.Eject(c.now, base, most, false, errBroken)
	if c.CheckPassed(c.now) || !c.Ejected(c.now) {
		t.Error("for answers: a passed check ends it")
	}
	c = newClock()
	c.Eject(c.now, base, most, true, errBroken)
	if !c.CheckPassed(c.now) || c.Ejected(c.now) || c.CheckPassed(c.now) {
		t.Error("for connections: a passed check does not end it")
	}
	c.Eject(c.now, base, most, true, errBroken)
	if c.CheckPassed(c.now) || !c.Ejected(c.now) {
		t.Error("a passed check ends the second")
	}
	c.SetVerdict(fails, c.now)
	c.SetVerdict(passes, c.now)
	if c.Ejected(c.now) {
		t.Error("recovering does not end it")
	}
	c.pass(11 * time.Second)
	c.eject(t, "one of two is forgiven", 60)
}

// A refused connection and a missing socket prove that nothing listens.
func TestIsRefused(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{fmt.Errorf("dial: %w", syscall.ECONNREFUSED): true, syscall.ENOENT: true, errBroken: false, nil: false} {
		if got := IsRefused(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}

// The state follows from checks, refusals and ejections, in this order; the next change
// is the first that ends.
func TestState(t *testing.T) {
	t.Parallel()
	c := newClock()
	want := func(state backend.EndpointState, lastError string) {
		t.Helper()
		if got := c.State(c.now); got != state || c.LastError != lastError {
			t.Errorf("%s with the error %q, want %s with %q", got, c.LastError, state, lastError)
		}
	}
	want(backend.EndpointUnknown, "")
	if c.SetVerdict(passes, c.now) {
		t.Error("the first check passed, and it fell")
	}
	want(backend.EndpointHealthy, "")
	c.Eject(c.now, base, most, false, errors.New("bad status: 500"))
	want(backend.EndpointEjected, "bad status: 500")
	c.Refuse(c.now, errors.New("refused"))
	want(backend.EndpointUnhealthy, "refused")
	if next := c.Next(c.now); next != c.now.Add(refusedFor) {
		t.Errorf("the next change is %v after now", next.Sub(c.now))
	}
	c.pass(refusedFor)
	want(backend.EndpointEjected, "refused")
	for _, fell := range []bool{true, false} {
		if c.SetVerdict(fails, c.now) != fell {
			t.Errorf("fell is %v", !fell)
		}
	}
	want(backend.EndpointUnhealthy, errBroken.Error())
	c.Answers.Failed(0)
	c.SetVerdict(passes, c.now)
	want(backend.EndpointHealthy, errBroken.Error())
	if c.Answers.Failed(2) {
		t.Error("recovering does not reset the failures")
	}
}

// Consecutive failures reach the limit; a good outcome resets the count, and the limit 0
// is never reached.
func TestBreaker(t *testing.T) {
	t.Parallel()
	var b Breaker
	for range 5 {
		if b.Failed(0) {
			t.Error("the limit 0 is reached")
		}
	}
	b.Good()
	for i := range 3 {
		if got, want := b.Failed(3), i == 2; got != want {
			t.Errorf("failure %d of 3 reaches the limit: got %v, want %v", i+1, got, want)
		}
	}
}
