package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// watchesPerLane is how many watches share a connection: what servers of the
// Kubernetes family allow.
const watchesPerLane = 100

// idleWatches measures what watches take in which nothing happens.
func (r *proxyRun) idleWatches(ctx context.Context) error {
	for _, f := range []*front{r.bare, r.gateway} {
		m, err := r.idleAt(ctx, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		r.say("%s: %.1f KB for a watch, %.1f KB without garbage", f.name, m.KB, m.CleanKB)
		r.report.Watches = append(r.report.Watches, m)
	}
	return nil
}

func (r *proxyRun) idleAt(ctx context.Context, f *front) (m proxyWatches, err error) {
	m = proxyWatches{Proxy: f.name, Watches: r.o.watches}
	// What the first few make is not made again.
	if err := r.hold(ctx, f, watchesPerLane, func() error { return r.rest(ctx) }); err != nil {
		return m, err
	}
	if err := r.collect(ctx, f); err != nil {
		return m, err
	}
	before, err := anonymous(f.pid)
	if err != nil {
		return m, err
	}
	each := func() (float64, error) {
		after, err := anonymous(f.pid)
		return float64(after-before) / 1e3 / float64(r.o.watches), err
	}
	err = r.hold(ctx, f, r.o.watches, func() (err error) {
		spent := f.cpu()
		if err := r.rest(ctx); err != nil {
			return err
		}
		m.IdleCPU = float64(f.cpu().since(spent)[f.name]) / float64(max(r.o.quiet, time.Millisecond))
		if m.KB, err = each(); err != nil {
			return err
		}
		if err := r.collect(ctx, f); err != nil {
			return err
		}
		m.CleanKB, err = each()
		return err
	})
	return m, err
}

// collect has the gateway collect its garbage and give memory back; nobody can
// ask another proxy for that.
func (r *proxyRun) collect(ctx context.Context, f *front) error {
	if f != r.gateway {
		return nil
	}
	for range 2 { // what the first leaves to finalizers and pools, the second takes
		if _, err := r.stack.admin.discard(ctx, 0, request{path: "/debug/pprof/heap?gc=1"}); err != nil {
			return err
		}
	}
	return r.rest(ctx)
}

func (r *proxyRun) rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(r.o.quiet):
		return nil
	}
}

// hold opens n watches, calls during when all of them have begun, and closes
// them.
func (r *proxyRun) hold(ctx context.Context, f *front, n int, during func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fields := requestFields(proxyGroupPath(0)+"/namespaces/default/"+proxyPlural+"?watch=true", r.token)
	var begun atomic.Int64
	all := make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	for left := n; left > 0; left -= watchesPerLane {
		conn, err := f.dial(ctx, http2Name)
		if err != nil {
			return err
		}
		defer conn.Close()
		lane, err := newLane2(conn, fields, func(time.Time, int64) error { return errors.New("a watch ended") })
		if err != nil {
			return err
		}
		lane.answered = func() {
			if begun.Add(1) == int64(n) {
				close(all)
			}
		}
		reading.Go(func() { cancel(lane.read()) })
		for range min(left, watchesPerLane) {
			if err := lane.send(time.Now()); err != nil {
				return err
			}
		}
		if err := lane.flush(); err != nil {
			return err
		}
	}
	select {
	case <-all:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lostAfter):
		return fmt.Errorf("only %d of %d watches began within %v", begun.Load(), n, lostAfter)
	}
	return during()
}
