package up

import (
	"context"
	"fmt"
	"time"
)

const (
	// slowAfter is the time after which a step is slow: a line says what it waits for.
	slowAfter = time.Second
	// repeatWaiting is the least time between two lines with the same reason.
	repeatWaiting = 10 * time.Second
)

// step is one of the start or the stop, of which nothing is printed unless it is slow.
type step struct {
	s      *stack
	what   string    // that is waited for
	start  time.Time // of the start or the stop
	began  time.Time
	said   time.Time
	reason string
}

func (s *stack) step(what string) *step {
	return &step{s: s, what: what, start: s.began, began: time.Now()}
}

// look prints what a slow step waits for, once and when the reason changes, with the second of the
// start or the stop in which it does. reason may be nil.
func (p *step) look(reason error) {
	now, text := time.Now(), ""
	if reason != nil {
		text = ": " + reason.Error()
	}
	if now.Sub(p.began) < slowAfter || text == p.reason && now.Sub(p.said) < repeatWaiting {
		return
	}
	p.said, p.reason = now, text
	p.s.say(waitingFor(p.start, p.what+text))
}

// await calls look until done is closed or ctx ends.
func (p *step) await(ctx context.Context, done <-chan struct{}, reason func() error) {
	tick := time.NewTicker(slowAfter)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			p.look(reason())
		}
	}
}

// waitingFor returns a line of progress with the second after start.
func waitingFor(start time.Time, what string) string {
	return fmt.Sprintf("%.0f s: waiting for %s", time.Since(start).Seconds(), what)
}

// say prints and logs a line of progress.
func (s *stack) say(line string) {
	fmt.Fprintln(s.out, "portico: "+line)
	s.log.Info(line)
}
