package pace

import (
	"context"
	"runtime"
	"time"
)

const (
	// letInEvery is how often the network is let in while memory is swept.
	letInEvery = 200 * time.Microsecond
	// sweptAfter: nothing has been freed for so many looks, so that sweeping is over.
	// No sweep is accompanied for longer than sweepLimit.
	sweptAfter = 3
	sweepLimit = 100 * time.Millisecond
)

// marks tells of the end of each collection's marking, when sweeping begins. It is for
// one goroutine.
type marks chan struct{}

// newMarks tells of the next one.
func newMarks() marks {
	m := make(marks, 1)
	m.next()
	return m
}

// sentinel is an object that nobody holds. A collection finds that out and, when it
// comes to its place, has the finalizer run: among the first, for the runtime sweeps
// the smallest objects first. It has a pointer because objects of that size that have
// none share their places with others.
type sentinel struct{ _ *byte }

// next tells of the next one, once. Who was told asks again.
func (m marks) next() {
	runtime.SetFinalizer(&sentinel{}, func(*sentinel) {
		select {
		case m <- struct{}{}:
		default: // who listens will hear of the one before
		}
	})
}

// letNetworkIn has what comes from the network seen while memory is swept, of a
// process that has one processor, and returns when that is over.
//
// What sweeps gives way to whatever is ready, but is ready itself all the time: and
// only where nothing is does Go's scheduler ask the network. With one processor it
// does so when all is swept, or 10 ms later: 80 MB kept requests waiting for 5 ms.
// Whenever the world starts again after a stop the scheduler asks the network as
// well, and of what stops the world by a public function, [runtime.ReadMemStats] is
// over the soonest: 3 µs.
//
// Measured with a server that allocates 36 KB for each request, on one processor of a
// virtual machine: the longest wait within 10 ms after marking was 2.3 to 3 ms at the
// median of 17 collections, and is 1.1, which is what the runtime takes at a time to
// give memory back.
//
// Source: bgsweep, findRunnable and startTheWorldWithSema in Go's package runtime.
func letNetworkIn(ctx context.Context) {
	var now runtime.MemStats
	tick := time.NewTimer(letInEvery)
	defer tick.Stop()
	begun, freed := time.Now(), uint64(0)
	for same := 0; same < sweptAfter && time.Since(begun) < sweepLimit; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if runtime.ReadMemStats(&now); now.Frees == freed {
			same++
		} else {
			freed, same = now.Frees, 0
		}
		tick.Reset(letInEvery)
	}
}
