// Package pace fits Go's runtime to what a process does: how often it collects
// garbage, and how closely it watches itself (see [Relax]).
//
// Go lets a heap double between collections. That is too often for a gateway under
// load, which holds little and marked the same caches ten times a second; and it is
// much for a server that keeps tens of megabytes of objects as bytes, which are
// dear to keep twice and cost nothing to mark. So the room between collections is
// measured by what there is to mark, is larger the busier a process is, and what
// load took is given back when it is over. And while a process with one processor
// sweeps, what comes from the network does not have to wait for the end of it.
//
// Runs in: every process of portico; Relax in the gateway.
package pace

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// interval is how often the pace is looked at, and looksOfBusy how often in it that
	// of a busy process. Traffic comes in bursts, and a collection, which an allocation
	// starts, always falls into one; so the room is for what bursts allocate.
	interval    = time.Second
	looksOfBusy = 4
	// apart is how many intervals of a busy process lie between collections.
	apart = 6
	// A process that allocates busyBytes in an interval is busy; one that
	// allocates no more than quietBytes in each of quietAfter intervals is
	// quiet.
	busyBytes, quietBytes = 8 << 20, 2 << 20
	quietAfter            = 5
	// quietRoom is how much, in bytes, may be allocated between collections at
	// least while a process is quiet, and at least half as much as there is to
	// mark.
	quietRoom = 4 << 20
	// spare is how much memory that nothing needs, in bytes, is worth giving
	// back.
	spare = 2 << 20
	// The percentage of GOGC is never set beyond these.
	minPercent, maxPercent = 10, 4000
	// burst is for how long, after a collection, it is looked at how fast a process
	// allocates that was not busy.
	burst = 20 * time.Millisecond
)

// Work is what a process does. It says how much may be allocated between
// collections while the process is busy: what it allocates in six seconds at the rate
// of its bursts, within bounds, and at least as much as there is to mark, which is what
// Go's own pace comes to where all of a heap has to be marked. It is no more than a
// sixteenth of the memory that the process may have (see memory).
type Work int

const (
	// ForTraffic is for who passes much on and keeps little: 16 to 192 MB. A
	// collection takes a gateway 7 ms of a processor, whatever the room, in 15 ms for
	// which requests have half of it: on a busy one 200 of them wait for longer than
	// 3 ms, and so it should have passed on 20,000 since the last one, if 99 of 100
	// are not to. Measured with all requests that one processor can pass on: with
	// 64 MB instead of 16 each takes 8 to 15 % less of it.
	ForTraffic Work = iota
	// ForObjects is for who keeps many objects: 8 MB. Measured in the CRD server
	// with 5,000 of them: 9 MB less than with twice as much room, for nothing that
	// could be measured of a create's CPU there and a twelfth of a GET's.
	ForObjects
	// ForStorage is for etcd: 16 MB.
	ForStorage
)

// room returns the bounds of a busy process, in bytes.
func (w Work) room() (least, most uint64) {
	switch w {
	case ForTraffic:
		return 16 << 20, 192 << 20
	case ForStorage:
		return 16 << 20, 16 << 20
	}
	return 8 << 20, 8 << 20
}

// Keep adapts the pace until ctx ends. What the environment sets by GOGC stays as
// it is; memory is given back all the same.
func Keep(ctx context.Context, work Work) {
	_, fixed := os.LookupEnv("GOGC")
	p := &pacer{percent: 100, last: read(), work: work, memory: Memory()}
	set := p.percent
	slack := relaxed(isRelaxed())
	marked := newMarks()
	tick := time.NewTimer(interval)
	defer tick.Stop()
	for {
		giveBack := false
		select {
		case <-ctx.Done():
			return
		case <-marked:
			marked.next()
			began, before := time.Now(), read()
			if runtime.GOMAXPROCS(0) == 1 {
				letNetworkIn(ctx)
			}
			if p.busy {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(burst - time.Since(began)):
			}
			if !p.wake(before, read(), time.Since(began)) {
				continue
			}
		case <-tick.C:
			slack.look()
			giveBack = p.next(read())
		}
		if p.percent != set && !fixed {
			debug.SetGCPercent(p.percent)
			set = p.percent
		}
		if giveBack {
			debug.FreeOSMemory()
		}
		tick.Reset(interval / time.Duration(p.looks()))
	}
}

// sample is what the runtime says of the heap, in bytes.
type sample struct {
	allocated uint64 // so far
	live      uint64 // found by the last collection
	marked    uint64 // of what is live, what has to be looked through
	unneeded  uint64 // held by the process without need
}

func read() sample {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s)
	value := func(i int) uint64 { return s[i].Value.Uint64() }
	return sample{
		allocated: value(0), live: value(1), marked: value(2),
		unneeded: value(3) - min(value(1), value(3)) + value(4),
	}
}

// pacer decides from one sample to the next. It is for one goroutine.
type pacer struct {
	percent int // to be set
	work    Work
	memory  uint64 // that the process may have, in bytes; 0: nobody knows
	last    sample
	rate    uint64 // bytes allocated in an interval, at the pace of a burst, of late
	busy    bool
	quiet   int // intervals
	// What was allocated in this interval so far, and how many samples that are.
	begun  uint64
	looked int
}

// looks is how many samples an interval has.
func (p *pacer) looks() int {
	if p.busy {
		return looksOfBusy
	}
	return 1
}

// next takes a sample in and reports whether to give memory back.
func (p *pacer) next(now sample) (giveBack bool) {
	allocated := now.allocated - p.last.allocated
	p.last = now
	looks := uint64(p.looks())
	p.rate = max(allocated*looks, p.rate-p.rate/(8*looks)) // a pause is no reason to collect more often
	p.begun += allocated
	if p.looked++; p.looked == p.looks() {
		giveBack = p.end(p.begun, now.unneeded)
		p.begun, p.looked = 0, 0
	}
	// A little more or less is not worth stopping the world.
	if next := p.fit(now); next*10 < p.percent*8 || next*8 > p.percent*10 {
		p.percent = next
	}
	return giveBack
}

// wake takes in how fast a process that is not busy allocates behind a collection: two
// samples, a time apart. It reports whether the process has become busy: what is
// allocated in a burst before it is looked at next would be many times the room that it
// has. How much was allocated since it was looked at last does not tell, because nobody
// knows when the burst began.
func (p *pacer) wake(before, now sample, later time.Duration) bool {
	allocated := now.allocated - p.last.allocated
	rate := float64(now.allocated-before.allocated) / later.Seconds() * interval.Seconds()
	if p.busy || allocated < quietBytes || rate < busyBytes {
		return false
	}
	p.last, p.rate = now, max(p.rate, allocated, uint64(rate))
	p.busy, p.quiet, p.begun, p.looked = true, 0, allocated, 0
	p.percent = p.fit(now)
	return true
}

// end takes in what was allocated in an interval, and reports whether to give memory
// back.
func (p *pacer) end(allocated, unneeded uint64) (giveBack bool) {
	switch {
	case allocated >= busyBytes:
		p.busy, p.quiet = true, 0
	case allocated > quietBytes:
		p.quiet = 0
	default:
		p.quiet++
	}
	if p.quiet == quietAfter {
		p.busy = false
		return unneeded >= spare
	}
	return false
}

// fit returns the percentage that makes the room.
func (p *pacer) fit(now sample) int {
	room := max(quietRoom, now.marked/2)
	if p.busy {
		least, most := p.work.room()
		if p.memory > 0 {
			most = min(most, p.memory/partOfMemory)
		}
		room = max(min(max(apart*p.rate, least), most), now.marked)
	}
	return int(min(max(room*100/max(now.live, 1), minPercent), maxPercent))
}
