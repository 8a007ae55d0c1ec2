package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

const (
	// lanes2 is how many HTTP/2 connections share the requests of a turn.
	lanes2 = 4
	// openLanes is how many HTTP/1.1 connections a fixed rate may take.
	openLanes = 64
	// settleTime is how long the answers that are still to come are waited for.
	settleTime = 20 * time.Second
	// idleCheck is how often a wait without an end looks whether it has one.
	idleCheck = 100 * time.Millisecond
)

// load is what is sent to a front in one measurement.
type load struct {
	protocol string
	fields   fields
	want     int64 // length of an answer
	atOnce   int   // requests under way
	rate     int   // requests a second, whether or not answers come; 0: atOnce, always
}

func (l *load) check(got int64) error {
	if l.want >= 0 && got != l.want {
		return fmt.Errorf("%s: the answer has %d bytes, not %d", l.fields[3][1], got, l.want)
	}
	return nil
}

// lane is a connection that a driver uses. None of its functions waits.
type lane interface {
	room() bool // for one request more
	send(at time.Time) error
	flush() error
	// receive takes what has come; it ends in errAgain, or nil if nothing more is
	// to come.
	receive() error
}

// driver sends a load to a front, in as many turns as are wanted. Connecting is
// not part of any. It is for one goroutine, which it binds to its thread.
type driver struct {
	l      *load
	f      *front
	poll   *poller
	lanes  []lane
	conns  []*polled
	next   int         // of lanes, to be asked first
	due    []time.Time // requests that wait for a lane
	under  int         // requests under way
	closed time.Time   // the end of the turn, for who sends when answered
	took   []time.Duration
}

// drive connects to a front.
func (l *load) drive(ctx context.Context, f *front) (*driver, error) {
	poll, err := newPoller()
	if err != nil {
		return nil, err
	}
	d := &driver{l: l, f: f, poll: poll}
	n := l.atOnce
	switch {
	case l.protocol == http2Name:
		n = lanes2
	case l.rate > 0:
		n = openLanes
	}
	for range n {
		if err := d.connect(ctx); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

func (d *driver) connect(ctx context.Context) error {
	conn, err := dialPolled(ctx, d.f.address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", d.f.name, err)
	}
	secured, err := d.f.secure(ctx, conn, d.l.protocol)
	if err != nil {
		return err
	}
	d.conns = append(d.conns, conn)
	if d.l.protocol == http1 {
		d.lanes = append(d.lanes, newLane1(secured, d.l.fields, d.ended))
	} else {
		lane, err := newLane2(secured, d.l.fields, d.ended)
		for err == nil && !lane.room() { // it says first how many requests it takes
			err = lane.readSome()
		}
		if err != nil {
			return fmt.Errorf("connect to %s: %w", d.f.name, err)
		}
		d.lanes = append(d.lanes, lane)
	}
	return d.poll.add(conn, len(d.lanes)-1)
}

func (d *driver) close() {
	for _, c := range d.conns {
		_ = c.Close() // nothing is to come
	}
	d.poll.close()
}

// ended takes an answer into account.
func (d *driver) ended(began time.Time, bytes int64) error {
	now := time.Now()
	d.under--
	d.took = append(d.took, now.Sub(began))
	if d.l.rate == 0 && now.Before(d.closed) {
		d.due = append(d.due, now)
	}
	return d.l.check(bytes)
}

// turn sends the load for a time, waits for all answers and returns what was
// measured. After an error the driver is of no use any more.
func (d *driver) turn(ctx context.Context, length time.Duration) (sample, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exactTimers()
	d.took = make([]time.Duration, 0, cap(d.took))
	before, began := d.f.cpu(), time.Now()
	err := d.run(ctx, began, length)
	s := sample{took: time.Since(began), cpu: d.f.cpu().since(before), ops: int64(len(d.took)), latencies: d.took}
	if err != nil {
		return s, fmt.Errorf("%s: %w", d.f.name, err)
	}
	return s, nil
}

func (d *driver) run(ctx context.Context, began time.Time, length time.Duration) error {
	var next time.Time // when a request is due; zero: none is
	var every time.Duration
	d.closed = began.Add(length)
	if d.l.rate > 0 {
		next, every = began, time.Second/time.Duration(d.l.rate)
	} else {
		for range d.l.atOnce {
			d.due = append(d.due, began)
		}
	}
	for {
		now := time.Now()
		for !next.IsZero() && !next.After(now) {
			d.due = append(d.due, next)
			if next = next.Add(every); !next.Before(d.closed) {
				next = time.Time{}
			}
		}
		if err := d.dispatch(); err != nil {
			return err
		}
		wait := idleCheck
		switch {
		case !next.IsZero():
			wait = next.Sub(now)
		case d.under == 0:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case now.Sub(d.closed) > settleTime:
			return errors.New("answers did not come in time")
		}
		if err := d.receive(wait); err != nil {
			return err
		}
	}
}

// dispatch sends what is due, as far as there is room.
func (d *driver) dispatch() error {
	for tried := 0; len(d.due) > 0 && tried < len(d.lanes); tried++ {
		lane := d.lanes[d.next%len(d.lanes)]
		d.next++
		if !lane.room() {
			continue
		}
		if err := lane.send(d.due[0]); err != nil {
			return err
		}
		if err := lane.flush(); err != nil {
			return err
		}
		d.due, d.under, tried = d.due[1:], d.under+1, -1
	}
	return nil
}

// receive waits for answers, no longer than a time, and takes them.
func (d *driver) receive(wait time.Duration) error {
	come, err := d.poll.wait(wait)
	if err != nil {
		return err
	}
	for _, event := range come {
		if err := d.lanes[event.Fd].receive(); err != nil && !errors.Is(err, errAgain) {
			return err
		}
	}
	return nil
}

func (f *front) cpu() cpuTimes {
	p := processes{}
	if f.pid != 0 {
		p[f.name] = f.pid
	}
	return p.cpu()
}
