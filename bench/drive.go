package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// bound limits a measurement by the number of operations and by time. Operations
// in progress at the limit are finished and counted.
type bound struct {
	count int
	time  time.Duration
}

// sample is the result of one round.
type sample struct {
	ops, bytes int64
	took       time.Duration
	latencies  []time.Duration
	cpu        cpuTimes // CPU time of the round, by process
}

// rate returns operations per second.
func (s sample) rate() float64 { return float64(s.ops) / s.took.Seconds() }

// add returns the sum of two rounds. Its rate is weighted by time.
func (s sample) add(o sample) sample {
	return sample{
		ops: s.ops + o.ops, bytes: s.bytes + o.bytes, took: s.took + o.took,
		latencies: append(s.latencies, o.latencies...), cpu: s.cpu.add(o.cpu),
	}
}

// quantile returns a quantile of the latencies, from 0 to 1; 0 if there are none.
func (s sample) quantile(q float64) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	slices.Sort(s.latencies)
	return s.latencies[min(int(q*float64(len(s.latencies))), len(s.latencies)-1)]
}

// operation performs the i-th operation of a measurement in a worker and returns
// the number of bytes received.
type operation func(ctx context.Context, worker, i int) (int64, error)

// drive runs operations in parallel workers until the limit. The first error
// stops all workers and is returned. done counts finished operations for progress
// messages; it may be nil.
func drive(ctx context.Context, workers int, limit bound, done *atomic.Int64, op operation) (sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if done == nil {
		done = new(atomic.Int64)
	}
	var next, bytes atomic.Int64
	latencies := make([][]time.Duration, workers)
	began := time.Now()
	deadline := began.Add(limit.time)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for at := time.Now(); ctx.Err() == nil && at.Before(deadline); {
				i := int(next.Add(1)) - 1
				if i >= limit.count {
					return
				}
				n, err := op(ctx, w, i)
				if err != nil {
					cancel(err)
					return
				}
				end := time.Now()
				latencies[w] = append(latencies[w], end.Sub(at))
				at = end
				bytes.Add(n)
				done.Add(1)
			}
		})
	}
	all.Wait()
	s := sample{bytes: bytes.Load(), took: time.Since(began), latencies: slices.Concat(latencies...)}
	s.ops = int64(len(s.latencies))
	return s, context.Cause(ctx)
}
