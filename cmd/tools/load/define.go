package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// defineAll measures how soon definitions are served: some one after the other,
// the rest as fast as they are taken.
func (r *runner) defineAll(ctx context.Context) error {
	alone := max(r.o.definitions/10, 1)
	before := r.procs.memory()
	for _, part := range []struct{ from, n, workers int }{{0, alone, 1}, {alone, r.o.definitions - alone, r.o.workers}} {
		if part.n == 0 {
			continue
		}
		spent := r.procs.cpu()
		got, err := r.define(ctx, part.from, part.n, part.workers)
		if err != nil {
			return err
		}
		got.cpu = r.procs.cpu().since(spent)
		what := fmt.Sprintf("%d definitions, %d at a time", part.n, part.workers)
		r.progress.say("%s: all served after %.1f s, half of them within %v of being accepted", what, got.took.Seconds(), got.quantile(0.5))
		r.report.add(row{what: what + ": accepted → first LIST", unit: "served/s", figure: sample.rate, ours: []sample{got}})
	}
	r.remember(fmt.Sprintf("%d definitions more", r.o.definitions))
	// After other work, garbage that becomes free hides what they take.
	if after := r.procs.memory(); len(after) > 0 && !r.o.needsObjects() {
		each := float64(after["crd"]-before["crd"]) / 1e3 / float64(r.o.definitions)
		r.report.note("a definition took %.0f KB of the CRD server's anonymous memory, garbage included", each)
	}
	return nil
}

// define creates definitions and waits until each of them is served. The
// latencies are from the answer that accepted it to the first LIST.
func (r *runner) define(ctx context.Context, from, n, workers int) (sample, error) {
	served := make([]time.Duration, n)
	var done atomic.Int64
	defer r.progress.follow("definitions", &done, n)()
	s, err := drive(ctx, workers, bound{n, r.o.limit}, &done, func(ctx context.Context, worker, i int) (int64, error) {
		group := fmt.Sprintf("g%d.%s", from+i, r.group)
		body, err := definition(group)
		if err != nil {
			return 0, err
		}
		if err := r.createDefinition(ctx, worker, group, body); err != nil {
			return 0, err
		}
		accepted := time.Now()
		err = untilTaken(ctx, askOften, func() error {
			_, err := r.target.discard(ctx, worker, request{path: "/apis/" + group + "/v1/workloads"})
			return err
		})
		served[i] = time.Since(accepted)
		return 0, err
	})
	if err == nil && s.ops < int64(n) {
		err = fmt.Errorf("only %d of %d were served within %v", s.ops, n, r.o.limit)
	}
	s.latencies = served
	return s, err
}
