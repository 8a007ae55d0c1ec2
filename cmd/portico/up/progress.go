package up

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
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
	child  bool      // what is the name of a child that starts
	start  time.Time // of the start or the stop
	began  time.Time
	said   time.Time
	reason string
}

func (s *stack) step(what string) *step {
	return &step{s: s, what: what, start: s.began, began: time.Now()}
}

// stepOfChild is the start of a child.
func (s *stack) stepOfChild(name string) *step {
	p := s.step(name)
	p.child = true
	return p
}

// text returns what the step waits for, with the reason, which may be nil.
func (p *step) text(reason error) string {
	switch {
	case p.child && reason == nil:
		return p.what + " is starting"
	case p.child:
		return starting(p.what, reason)
	case reason == nil:
		return "waiting for " + p.what
	}
	return "waiting for " + p.what + ": " + reason.Error()
}

// starting says what a child does that is not ready for a reason.
func starting(name string, reason error) string {
	_, checks, answers := strings.Cut(reason.Error(), ": waiting for ")
	switch {
	case errors.Is(reason, syscall.ENOENT), errors.Is(reason, syscall.ECONNREFUSED):
		return name + " is starting"
	case answers && strings.Contains(checks, "informer-sync") && !strings.Contains(checks, "kms") && !strings.Contains(checks, "etcd"):
		return name + " reads its objects"
	case answers:
		return name + " waits for " + checks
	}
	return name + " is starting: " + reason.Error()
}

// look prints what a slow step waits for, once and when the reason changes, with the second of the
// start or the stop in which it does. reason may be nil.
func (p *step) look(reason error) {
	now, text := time.Now(), p.text(reason)
	if now.Sub(p.began) < slowAfter || text == p.reason && now.Sub(p.said) < repeatWaiting {
		return
	}
	p.said, p.reason = now, text
	p.s.say(at(p.start, text))
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

// at returns a line of progress with the second after start.
func at(start time.Time, text string) string {
	return fmt.Sprintf("%.0f s: %s", time.Since(start).Seconds(), text)
}

// say prints and logs a line of progress.
func (s *stack) say(line string) {
	fmt.Fprintln(s.out, "portico: "+line)
	s.log.Info(line)
}
