package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// sayEvery is the pause between lines about one measurement.
const sayEvery = 3 * time.Second

// progress tells the user what is going on.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

// say prints a line with the time since the start.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// follow says from time to time how far count has come, until the returned
// function is called.
func (p *progress) follow(what string, count *atomic.Int64, of int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				p.say("%s: %d of %d", what, count.Load(), of)
			}
		}
	}()
	return func() { close(end); <-ended }
}
