// Package pace sets how much a process allocates between two collections of garbage.
//
// Go lets a heap double. That is too little for a gateway under load, which keeps few
// bytes and would mark its caches ten times a second, and too much for a server that
// keeps tens of megabytes of encoded objects. So the room between collections has a
// least size, grows with what the process allocates, and shrinks when it is idle; the
// memory that load took is then returned to the system.
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
	interval = time.Second
	// A process that allocates busyBytes in an interval is busy until it has allocated
	// less than idleBytes in each of idleIntervals.
	busyBytes, idleBytes = 8 << 20, 2 << 20
	idleIntervals        = 5
	// idleRoom is the least room, in bytes, of a process that is not busy.
	idleRoom = 4 << 20
	// A busy process collects about every collectEvery intervals, within the bounds of
	// its Work.
	collectEvery = 6
	// A process that allocates so much that it would collect more often than this in an
	// interval gets more room: creating definitions allocates half a gigabyte a second.
	mostCollections = 10
	// partOfMemory is the largest part of the process's memory that is room.
	partOfMemory = 16
	// releaseBytes of unused memory are worth returning to the system.
	releaseBytes = 2 << 20
	// GOGC's percentage stays between these.
	minPercent, maxPercent = 10, 4000
)

// Work is the kind of work of a process. It bounds the room of a busy process, which is
// at least as large as what a collection has to mark and as what it allocates in a tenth
// of a second, and at most a sixteenth of Memory.
type Work int

const (
	ForTraffic Work = iota // passes requests on and keeps little: 16 to 192 MB
	ForObjects             // keeps many encoded objects: 8 MB
	ForStorage             // etcd: 16 MB
)

// rooms are the bounds of the room, in bytes.
var rooms = [...]struct{ least, most uint64 }{
	ForTraffic: {16 << 20, 192 << 20}, ForObjects: {8 << 20, 8 << 20}, ForStorage: {16 << 20, 16 << 20},
}

// Keep sets the pace once a second until ctx ends. A GOGC in the environment stays as it
// is; unused memory is returned all the same.
func Keep(ctx context.Context, work Work) {
	_, fixed := os.LookupEnv("GOGC")
	p := &pacer{percent: 100, last: read(), work: work, memory: Memory()}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := p.percent
		release := p.next(read())
		if p.percent != before && !fixed {
			debug.SetGCPercent(p.percent)
		}
		if release {
			debug.FreeOSMemory()
		}
	}
}

// sample is the state of the heap, in bytes.
type sample struct {
	allocated uint64 // since the process started
	live      uint64 // after the last collection
	marked    uint64 // the part of live that a collection has to scan
	unused    uint64 // held by the process without need
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
		unused: value(3) - min(value(1), value(3)) + value(4),
	}
}

// pacer computes the percentage of GOGC from one sample to the next.
type pacer struct {
	percent int
	work    Work
	memory  uint64 // see Memory
	last    sample
	rate    uint64 // bytes allocated in an interval, falling slowly
	busy    bool
	idle    int // intervals
}

// next takes a sample and reports whether to return memory to the system.
func (p *pacer) next(now sample) (release bool) {
	allocated := now.allocated - p.last.allocated
	p.last = now
	p.rate = max(allocated, p.rate-p.rate/8)
	switch {
	case allocated >= busyBytes:
		p.busy, p.idle = true, 0
	case allocated > idleBytes:
		p.idle = 0
	default:
		p.idle++
	}
	if p.idle == idleIntervals {
		p.busy, release = false, now.unused >= releaseBytes
	}
	// SetGCPercent stops the world: small differences are not worth it.
	if next := p.fit(now); next*10 < p.percent*8 || next*8 > p.percent*10 {
		p.percent = next
	}
	return release
}

// fit returns the percentage that makes the room.
func (p *pacer) fit(now sample) int {
	room := max(idleRoom, now.marked/2)
	if p.busy {
		bounds := rooms[p.work]
		bounds.most = max(bounds.most, p.rate/mostCollections)
		if p.memory > 0 {
			bounds.most = min(bounds.most, p.memory/partOfMemory)
		}
		room = max(min(max(collectEvery*p.rate, bounds.least), bounds.most), now.marked)
	}
	return int(min(max(room*100/max(now.live, 1), minPercent), maxPercent))
}
