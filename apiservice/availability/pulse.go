package availability

import (
	"sync"
	"time"
)

const (
	// beat is the interval of the timer that shows how busy this process is.
	beat = 100 * time.Millisecond
	// lateness is how late that timer fires in a process that gets too little processor time to
	// judge others: ten times what a process that is held to a tenth of a processor needs for the
	// work of a probe.
	lateness = 200 * time.Millisecond
)

// pulse is a timer that fires every beat while a probe runs. A process that is starved, was stopped
// (SIGSTOP) or ran on a machine that was suspended sees it fire late.
type pulse struct {
	mu      sync.Mutex
	timer   *time.Timer
	due     time.Time
	late    bool
	stopped bool // a beat that waits for mu meanwhile is the last
}

func startPulse() *pulse {
	p := &pulse{due: time.Now().Add(beat)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(beat, p.fire)
	return p
}

func (p *pulse) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.look()
	p.due = time.Now().Add(beat)
	p.timer.Reset(beat)
}

func (p *pulse) look() { p.late = p.late || time.Since(p.due) > lateness }

// stop ends the pulse, and reports whether a beat was late.
func (p *pulse) stop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
	p.look()
	return p.late
}
