package admission

import (
	"context"
	"sync"
	"time"
)

// gate is closed until something is known for the first time.
type gate struct {
	once   sync.Once
	opened chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// waitAll waits until the gates are open, no longer than limit, and reports
// whether they are.
func waitAll(ctx context.Context, limit time.Duration, gates ...*gate) bool {
	var timeout <-chan time.Time
	for _, g := range gates {
		if g.isOpen() {
			continue
		}
		if timeout == nil {
			timer := time.NewTimer(limit)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-g.opened:
		case <-timeout:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}
