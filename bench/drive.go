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

// compareWork measures work on objects in installations, called names, in turns. The first is the yardstick of the others,
// and bar the share of its rate that they are to have; 0: there is none.
func compareWork(ctx context.Context, report *report, runners []*runner, names []string, of func(*runner) *subject, bar float64) error {
	all := make([][]contender, 4)
	verbs := [...]string{"create", "GET", "LIST", "watch"}
	what := ""
	for _, r := range runners {
		s := of(r)
		what = s.name
		if _, err := s.calibrate(ctx, r.target, r.o.size); err != nil {
			return err
		}
		var now *present
		look := func(ctx context.Context) (err error) {
			now, err = s.listNow(ctx, r.target, r.o.objects)
			return err
		}
		requests := func(limit bound, next func(i int) request) func(context.Context, int) (sample, error) {
			return func(ctx context.Context, _ int) (sample, error) {
				return drive(ctx, r.o.workers, limit, nil, func(ctx context.Context, worker, i int) (int64, error) {
					return r.target.discard(ctx, worker, next(i))
				})
			}
		}
		created := 0
		each := r.o.objects / r.o.rounds
		create := func(ctx context.Context, round int) (sample, error) {
			from := created
			created += each
			return requests(bound{each, r.o.limit}, func(i int) request {
				return request{method: "POST", path: s.list(), contentType: jsonType, body: s.body(from+i, 0, "")}
			})(ctx, round)
		}
		limit := bound{1 << 20, r.o.time}
		all[0] = append(all[0], contender{procs: r.procs, run: create})
		all[1] = append(all[1], contender{procs: r.procs, run: requests(limit, func(i int) request { return request{path: s.objectPath(i * 7919 % r.o.objects)} })})
		all[2] = append(all[2], contender{procs: r.procs, run: requests(limit, func(int) request { return request{path: s.list()} })})
		all[3] = append(all[3], contender{procs: r.procs, prepare: look, run: func(ctx context.Context, _ int) (sample, error) { return r.watchLive(ctx, s, now) }})
	}
	for i, each := range all {
		for n := range each {
			each[n].name = verbs[i] + " with " + names[n]
		}
		results, err := runners[0].turns(ctx, perSecond(verbs[i]), each...)
		if err != nil {
			return err
		}
		for n := 1; n < len(results); n++ {
			report.add(row{what: verbs[i] + ", " + what + ", " + names[n], unit: "/s", figure: sample.rate, ours: results[n], yard: results[0], yardstick: names[0], bar: bar})
		}
	}
	return nil
}
