package upstream

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// What has come is seen when all that could run before has run.
func TestLateness(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	lateness() // makes what it takes
	const others, work = 5, 4 * time.Millisecond
	var done sync.WaitGroup
	for range others {
		done.Go(func() {
			for began := time.Now(); time.Since(began) < work; {
			}
		})
	}
	if late := lateness(); late < busyAfter {
		t.Errorf("%v late, behind %d goroutines that have work for %v each", late, others, work)
	}
	done.Wait()
}
