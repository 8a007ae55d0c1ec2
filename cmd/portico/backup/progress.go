package backup

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// progress prints a line each second while a step runs, with the second, so none for a step of less
// than a second.
// It counts what is written to it, and refuses it after its context has ended.
type progress struct {
	ctx  context.Context
	done atomic.Int64
	stop func() // may be called more than once
}

// startProgress begins a step. total is the number of bytes to be written; 0 if it is unknown.
func startProgress(ctx context.Context, to io.Writer, what string, total int64) *progress {
	p, ended := &progress{ctx: ctx}, make(chan struct{})
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
				line += fmt.Sprintf(": %s of %s", size(p.done.Load()), size(total))
			}
			fmt.Fprintln(to, line)
		}
	})
	p.stop = sync.OnceFunc(func() { close(ended); running.Wait() })
	return p
}

func (p *progress) Write(data []byte) (int, error) {
	p.done.Add(int64(len(data)))
	return len(data), p.ctx.Err()
}

// size returns a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
