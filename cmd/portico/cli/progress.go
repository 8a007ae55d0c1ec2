package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Progress prints a line each second while a step runs, with the second, so none for a step of less
// than a second.
// It counts what is written to it, and refuses it after its context has ended.
type Progress struct {
	ctx  context.Context
	done atomic.Int64
	// Stop ends the step. It may be called more than once.
	Stop func()
}

// StartProgress begins a step. total is the number of units to be added, which text formats; 0 if
// it is unknown.
func StartProgress(ctx context.Context, to io.Writer, what string, total int64, text func(units int64) string) *Progress {
	p, ended := &Progress{ctx: ctx}, make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		start, tick := time.Now(), time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			line := fmt.Sprintf("portico: %.0f s: %s", time.Since(start).Seconds(), what)
			if total > 0 {
				line += fmt.Sprintf(": %s of %s", text(p.done.Load()), text(total))
			}
			fmt.Fprintln(to, line)
		}
	})
	p.Stop = sync.OnceFunc(func() { close(ended); running.Wait() })
	return p
}

// Add adds units that are done.
func (p *Progress) Add(units int64) { p.done.Add(units) }

// Write adds the bytes of data.
func (p *Progress) Write(data []byte) (int, error) {
	p.Add(int64(len(data)))
	return len(data), p.ctx.Err()
}

// Size returns a number of bytes for people.
func Size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
