// Package tools has what several packages' tests need.
//
// Runs in: tests.
package tools

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// MeasureHeap calls do for each iteration of a benchmark and reports the most bytes of
// heap in use during a call (peak-MB) and the bytes it allocates (allocated-MB).
// Garbage is collected so often that little of it counts.
func MeasureHeap(b *testing.B, do func()) {
	for b.Loop() {
		peak, allocated := heapOf(do)
		b.ReportMetric(float64(peak>>20), "peak-MB")
		b.ReportMetric(float64(allocated>>20), "allocated-MB")
	}
}

func heapOf(do func()) (peak, allocated uint64) {
	debug.FreeOSMemory()
	var start, now runtime.MemStats
	runtime.ReadMemStats(&start)
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	done, most := make(chan bool), make(chan uint64)
	go func() {
		var m runtime.MemStats
		var top uint64
		for {
			runtime.ReadMemStats(&m)
			top = max(top, m.HeapAlloc)
			select {
			case <-done:
				most <- top
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	do()
	close(done)
	peak = <-most
	runtime.ReadMemStats(&now)
	return peak - min(peak, start.HeapAlloc), now.TotalAlloc - start.TotalAlloc
}
