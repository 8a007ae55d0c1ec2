package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// lanes2 is how many HTTP/2 connections share the requests of a round.
	lanes2 = 4
	// openLanes is how many HTTP/1.1 connections a fixed rate may take.
	openLanes = 64
	// settleTime is how long the answers that are still to come are waited for.
	settleTime = 20 * time.Second
)

// load is what is sent to a front in one measurement.
type load struct {
	protocol string
	fields   fields
	want     int64 // length of an answer
	atOnce   int   // requests under way
	time     time.Duration
	rate     int // requests a second, whether or not answers come; 0: atOnce, always
}

func (l *load) check(got int64) error {
	if l.want >= 0 && got != l.want {
		return fmt.Errorf("%s: the answer has %d bytes, not %d", l.fields[3][1], got, l.want)
	}
	return nil
}

// run sends the load to a front. Connecting is not measured.
func (l *load) run(ctx context.Context, f *front) (s sample, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.time+settleTime, errors.New("answers did not come in time"))
	defer cancel()
	var before cpuTimes
	var began time.Time
	begin := func() { before, began = f.cpu(), time.Now() }
	switch {
	case l.protocol == http2Name:
		s.latencies, err = l.run2(ctx, f, begin)
	case l.rate > 0:
		s.latencies, err = l.open1(ctx, f, begin)
	default:
		s.latencies, err = l.closed1(ctx, f, begin)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", f.name, err)
	}
	s.took, s.cpu, s.ops = time.Since(began), f.cpu().since(before), int64(len(s.latencies))
	return s, nil
}

func (f *front) cpu() cpuTimes {
	p := processes{}
	if f.pid != 0 {
		p[f.name] = f.pid
	}
	return p.cpu()
}

// lanes1 opens HTTP/1.1 connections, says so, and runs work on each until one
// fails.
func (l *load) lanes1(ctx context.Context, f *front, n int, begin func(), work func(lane *lane1) ([]time.Duration, error)) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var lanes []*lane1
	for range n {
		conn, err := f.dial(ctx, http1)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		lanes = append(lanes, newLane1(conn, l.fields))
	}
	begin()
	took := make([][]time.Duration, n)
	var all sync.WaitGroup
	for i, lane := range lanes {
		all.Go(func() {
			var err error
			if took[i], err = work(lane); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return slices.Concat(took...), context.Cause(ctx)
}

// exchange sends one request and returns when its answer was there.
func (l *load) exchange(lane *lane1) (time.Time, error) {
	got, err := lane.exchange()
	if err == nil {
		err = l.check(got)
	}
	return time.Now(), err
}

// closed1 has atOnce connections send the next request when the last one was
// answered.
func (l *load) closed1(ctx context.Context, f *front, begin func()) ([]time.Duration, error) {
	return l.lanes1(ctx, f, l.atOnce, begin, func(lane *lane1) (took []time.Duration, err error) {
		at := time.Now()
		for deadline := at.Add(l.time); at.Before(deadline); {
			end, err := l.exchange(lane)
			if err != nil {
				return took, err
			}
			took = append(took, end.Sub(at))
			at = end
		}
		return took, nil
	})
}

// open1 sends requests at their times. One for which no connection is free
// waits, and that counts.
func (l *load) open1(ctx context.Context, f *front, begin func()) ([]time.Duration, error) {
	due := make(chan time.Time, int(l.time.Seconds()*float64(l.rate))+1)
	return l.lanes1(ctx, f, openLanes, func() {
		begin()
		go func() {
			defer close(due)
			_ = l.pace(ctx, func(at time.Time) error { due <- at; return nil }) // there is room for all
		}()
	}, func(lane *lane1) (took []time.Duration, err error) {
		for at := range due {
			end, err := l.exchange(lane)
			if err != nil {
				return took, err
			}
			took = append(took, end.Sub(at))
		}
		return took, nil
	})
}

// pace calls send when a request is due, with the time it was due at. It sleeps
// in the kernel: the runtime's timers are a millisecond late when nothing else
// happens.
func (l *load) pace(ctx context.Context, send func(at time.Time) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	every := time.Second / time.Duration(l.rate)
	began := time.Now()
	for at := began; at.Sub(began) < l.time && ctx.Err() == nil; at = at.Add(every) {
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			pause := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&pause, nil) // woken early, it sleeps again
		}
		if err := send(at); err != nil {
			return err
		}
	}
	return nil
}

// run2 sends requests on a few HTTP/2 connections.
func (l *load) run2(ctx context.Context, f *front, begin func()) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	way := &underWay{over: make(chan struct{})}
	way.n.Store(1) // the sending
	var deadline time.Time
	lanes := make([]*lane2, lanes2)
	took := make([][]time.Duration, lanes2)
	for i := range lanes {
		conn, err := f.dial(ctx, http2Name)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		lanes[i], err = newLane2(conn, l.fields, func(at time.Time, bytes int64) {
			now := time.Now()
			took[i] = append(took[i], now.Sub(at))
			err := l.check(bytes)
			if l.rate == 0 && now.Before(deadline) && err == nil {
				way.n.Add(1)
				err = lanes[i].send(now, false)
			}
			if err != nil {
				cancel(err)
			}
			way.less()
		})
		if err != nil {
			return nil, err
		}
	}
	begin()
	deadline = time.Now().Add(l.time)
	var reading sync.WaitGroup
	for _, lane := range lanes {
		reading.Go(func() { cancel(lane.read()) })
	}
	err := l.begin2(ctx, lanes, way)
	select {
	case <-way.over:
	case <-ctx.Done():
		err = errors.Join(err, context.Cause(ctx))
	}
	for _, lane := range lanes {
		lane.conn.Close()
	}
	reading.Wait()
	return slices.Concat(took...), err
}

// underWay counts requests.
type underWay struct {
	n    atomic.Int64
	over chan struct{} // closed when there are none
}

func (u *underWay) less() {
	if u.n.Add(-1) == 0 {
		close(u.over)
	}
}

// begin2 sends what is to be sent: all at once, each to be followed by the next
// when it is answered, or each at its time.
func (l *load) begin2(ctx context.Context, lanes []*lane2, way *underWay) error {
	defer way.less()
	if l.rate == 0 {
		for i := range l.atOnce {
			way.n.Add(1)
			if err := lanes[i%len(lanes)].send(time.Now(), true); err != nil {
				return err
			}
		}
		return nil
	}
	i := 0
	return l.pace(ctx, func(at time.Time) error {
		i++
		way.n.Add(1)
		return lanes[i%len(lanes)].send(at, true)
	})
}
