// Package pace sets how often a process collects garbage. A small heap that
// grows by a few megabytes until the next collection is what an idle process
// should have; under load it means ten collections a second, each of which
// marks the same caches. While a process is busy it gets room, and when it has
// become quiet it gives back what it took.
//
// Runs in: every process of portico.
package pace

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// interval is how often the pace is looked at.
	interval = time.Second
	// busyCycles is how many collections in an interval make a process busy.
	busyCycles = 3
	// room is how much a busy process may allocate between collections at
	// least, in bytes. A heap that is larger than that grows by its own size,
	// as it does by default.
	room = 24 << 20
	// quietAfter is after how many intervals with no more than one collection
	// a process is quiet.
	quietAfter = 10
	// defaultPercent is Go's, maxPercent the most that is ever set.
	defaultPercent, maxPercent = 100, 800
)

// Keep adapts the pace until ctx ends. What the environment sets by GOGC stays
// as it is; memory is given back all the same.
func Keep(ctx context.Context) {
	_, fixed := os.LookupEnv("GOGC")
	// Starting counts as being busy, so that what it took is given back.
	p := &pacer{percent: defaultPercent, busy: true}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		percent, giveBack := p.next(read())
		if percent != p.percent && !fixed {
			debug.SetGCPercent(percent)
		}
		p.percent = percent
		if giveBack {
			debug.FreeOSMemory()
		}
	}
}

// sample is what the runtime says of the garbage collector.
type sample struct {
	cycles uint64 // collections so far that the runtime began
	live   uint64 // bytes that the last one left
}

func read() sample {
	s := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return sample{cycles: s[0].Value.Uint64(), live: s[1].Value.Uint64()}
}

// pacer decides from one sample to the next. It is for one goroutine.
type pacer struct {
	last    sample
	percent int
	busy    bool
	quiet   int // intervals
}

// next returns the percentage to set from now on, and whether to give memory
// back.
func (p *pacer) next(now sample) (percent int, giveBack bool) {
	cycles := now.cycles - p.last.cycles
	p.last = now
	switch {
	case cycles >= busyCycles:
		p.busy, p.quiet = true, 0
		return percentFor(now.live), false
	case cycles > 1:
		p.quiet = 0
		return p.percent, false
	}
	if p.quiet++; p.quiet < quietAfter || !p.busy {
		return p.percent, false
	}
	p.busy = false
	return defaultPercent, true
}

// percentFor gives a heap its room.
func percentFor(live uint64) int {
	if live == 0 {
		return maxPercent
	}
	return int(min(max(room*100/live, defaultPercent), maxPercent))
}
