package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// modifiedFrame is the beginning of each expected watch frame.
const modifiedFrame = `{"type":"MODIFIED",`

const (
	// checkEvery: every tenth watcher reads sequence numbers, the others count.
	checkEvery = 10
	// maxFrame bounds the bytes kept of a frame to read its number.
	maxFrame = 4 << 20
	// headOfFrame bounds the bytes that other watchers keep: the type, or the
	// text of an error.
	headOfFrame = 400
)

// watcher reads one watch. All fields except count belong to the reading
// goroutine.
type watcher struct {
	count atomic.Int64 // events MODIFIED
	keep  int
	frame []byte // beginning of the current frame, at most keep bytes
	// sent is nil if the watcher only counts.
	sent      *updates
	seen      map[int64]int // number of deliveries by sequence number
	latencies []time.Duration
}

// updates are the consecutive sequence numbers of updates, and their send times.
type updates struct {
	first int64
	began time.Time
	at    []atomic.Int64 // nanoseconds since began; 0 is not sent
}

func newUpdates(first int64) *updates {
	return &updates{first: first, began: time.Now(), at: make([]atomic.Int64, maxUpdates)}
}

// begin records that the i-th update is sent now and returns its number.
func (u *updates) begin(i int) int64 {
	u.at[i].Store(int64(time.Since(u.began)))
	return u.first + int64(i)
}

// age returns the time since a number was sent; 0 if it was not.
func (u *updates) age(number int64) time.Duration {
	i := number - u.first
	if i < 0 || i >= int64(len(u.at)) || u.at[i].Load() == 0 {
		return 0
	}
	return time.Since(u.began) - time.Duration(u.at[i].Load())
}

// take counts the events in the next bytes of the stream.
func (w *watcher) take(data []byte) error {
	var events int64
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		piece := data
		if end >= 0 {
			piece = data[:end]
		}
		if room := w.keep - len(w.frame); room > 0 {
			w.frame = append(w.frame, piece[:min(room, len(piece))]...)
		}
		if end < 0 {
			break
		}
		if !bytes.HasPrefix(w.frame, []byte(modifiedFrame)) {
			return fmt.Errorf("unexpected watch frame: %.400s", w.frame)
		}
		if w.sent != nil {
			w.record()
		}
		events++
		w.frame, data = w.frame[:0], data[end+1:]
	}
	w.count.Add(events)
	return nil
}

// record records the sequence number of the frame and its latency.
func (w *watcher) record() {
	number := numberIn(w.frame)
	w.seen[number]++
	if age := w.sent.age(number); age > 0 {
		w.latencies = append(w.latencies, age)
	}
}

// numberIn returns the sequence number in a frame; -1 if there is none.
func numberIn(frame []byte) int64 {
	at := bytes.Index(frame, []byte(sequence))
	if at < 0 {
		return -1
	}
	n := int64(0)
	for _, c := range bytes.TrimPrefix(frame[at+len(sequence):], []byte(`"`)) {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// watchers are watches of the same path.
type watchers struct {
	all    []*watcher
	cancel context.CancelCauseFunc
	ctx    context.Context
	ended  sync.WaitGroup
}

// openWatchers opens n watches and returns when all are answered. Unless sent is
// nil, every checkEvery-th of them reads sequence numbers. The caller closes them.
func openWatchers(ctx context.Context, p *client, path string, n int, sent *updates) (*watchers, error) {
	ws := &watchers{}
	ws.ctx, ws.cancel = context.WithCancelCause(ctx)
	var opened sync.WaitGroup
	for i := range n {
		w := &watcher{keep: headOfFrame}
		if sent != nil && i%checkEvery == 0 {
			w.keep, w.sent, w.seen = maxFrame, sent, map[int64]int{}
		}
		ws.all = append(ws.all, w)
		opened.Add(1)
		ws.ended.Go(func() {
			res, err := p.open(ws.ctx, i, request{path: path})
			opened.Done()
			if err != nil {
				ws.cancel(fmt.Errorf("open watch: %w", err))
				return
			}
			defer res.Body.Close()
			ws.cancel(w.read(res.Body))
		})
	}
	opened.Wait()
	if err := context.Cause(ws.ctx); err != nil {
		ws.ended.Wait()
		return nil, err
	}
	return ws, nil
}

// read counts events until the stream ends or fails, which is an error.
func (w *watcher) read(body io.Reader) error {
	buf := make([]byte, readBuffer)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if bad := w.take(buf[:n]); bad != nil {
				return bad
			}
		}
		if err != nil {
			return fmt.Errorf("a watch ended after %d events: %w", w.count.Load(), err)
		}
	}
}

// sum returns the number of events of all watchers.
func (ws *watchers) sum() int64 {
	var total int64
	for _, w := range ws.all {
		total += w.count.Load()
	}
	return total
}

// slowest returns the smallest number of events of a watcher.
func (ws *watchers) slowest() int64 {
	least := int64(math.MaxInt64)
	for _, w := range ws.all {
		least = min(least, w.count.Load())
	}
	return least
}

// errLost means that events were not delivered.
var errLost = errors.New("events were lost")

// wait returns when every watcher has received n events, and errLost if no watcher
// receives any for the time of patience.
func (ws *watchers) wait(n int64, patience time.Duration) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	sum, at := int64(-1), time.Now()
	for ws.slowest() < n {
		if now := ws.sum(); now != sum {
			sum, at = now, time.Now()
		} else if time.Since(at) > patience {
			return fmt.Errorf("%w: the slowest watcher received %d of %d", errLost, ws.slowest(), n)
		}
		select {
		case <-ws.ctx.Done():
			return context.Cause(ws.ctx)
		case <-tick.C:
		}
	}
	return nil
}

// errClosed is the cause of cancellation by close.
var errClosed = errors.New("closed")

func (ws *watchers) close() {
	ws.cancel(errClosed)
	ws.ended.Wait()
}

// latencies returns the recorded latencies. Call it after close.
func (ws *watchers) latencies() []time.Duration {
	var all []time.Duration
	for _, w := range ws.all {
		all = append(all, w.latencies...)
	}
	return all
}

// verify returns an error unless every watcher received n events, and those that
// read sequence numbers received each from first to first+n-1 exactly once. Call it
// after close.
func (ws *watchers) verify(first, n int64) error {
	for i, w := range ws.all {
		if got := w.count.Load(); got != n {
			return fmt.Errorf("watcher %d received %d events for %d updates", i, got, n)
		}
		if w.sent == nil {
			continue
		}
		for number := first; number < first+n; number++ {
			if times := w.seen[number]; times != 1 {
				return fmt.Errorf("watcher %d received update %d %d times", i, number, times)
			}
		}
	}
	return nil
}
