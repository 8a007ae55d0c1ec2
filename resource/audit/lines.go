package audit

import (
	"io"
	"sync"
	"time"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/log"
)

const (
	// writeBytes is how much is written at once, if it is more than one line: as
	// much as takes the processor, which may be the only one, from no request for
	// long.
	writeBytes = 64 << 10
	// gatherFor is how long the first line waits for others to be written with. A
	// write for every request would cost more than its line does.
	gatherFor = 5 * time.Millisecond
	// keptChunks is how many empty chunks are kept for the next lines.
	keptChunks = 16
)

// encoder makes events lines of JSON, in room that is used again. The zero value is
// good. Safe for concurrent use.
type encoder struct{ rooms sync.Pool } // of *[]byte

// each calls do with the line of each event, which is good until it returns, or
// with why there is none.
func (e *encoder) each(events []*auditapi.Event, do func(event *auditapi.Event, line []byte, err error)) {
	room, _ := e.rooms.Get().(*[]byte)
	if room == nil {
		room = new([]byte)
	}
	defer e.rooms.Put(room)
	for _, event := range events {
		line, err := appendEvent((*room)[:0], event)
		if cap(line) <= writeBytes && err == nil {
			*room = line
		}
		do(event, line, err)
	}
}

// lines is the log of events in JSON, where every request waits for its own.
type lines struct {
	out     io.Writer
	encoder encoder
	mu      sync.Mutex // one line after the other
}

// ProcessEvents implements audit.Sink.
func (l *lines) ProcessEvents(events ...*auditapi.Event) bool {
	written := true
	l.encoder.each(events, func(event *auditapi.Event, line []byte, err error) {
		if err == nil {
			l.mu.Lock()
			_, err = l.out.Write(line)
			l.mu.Unlock()
		}
		if err != nil {
			audit.HandlePluginError(log.PluginName, err, event)
			written = false
		}
	})
	return written
}

func (l *lines) Run(<-chan struct{}) error { return nil }
func (l *lines) Shutdown()                 {}
func (l *lines) String() string            { return log.PluginName }

// queuedLines is the log of events in JSON where nobody waits for it: events are
// encoded at once, which takes less than a copy of them would, and written by one
// goroutine, soon and in pieces. What waits is never moved: where the disk hangs,
// requests go on as before, and lines are lost that find no room.
type queuedLines struct {
	out    io.Writer
	limit  int // lines
	losses *losses
	wake   chan struct{} // a line waits
	full   chan struct{} // there is enough for a write
	ended  chan struct{}

	encoder encoder

	mu      sync.Mutex
	waiting []chunk // the last one is being filled
	free    [][]byte
	lines   int // in waiting, and being written
	bytes   int // the same
	closed  bool
}

// chunk is some whole lines.
type chunk struct {
	data  []byte
	lines int
}

func newQueuedLines(out io.Writer, limit int, losses *losses) *queuedLines {
	return &queuedLines{
		out: out, limit: limit, losses: losses, wake: make(chan struct{}, 1), full: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// ProcessEvents implements audit.Sink.
func (q *queuedLines) ProcessEvents(events ...*auditapi.Event) bool {
	q.encoder.each(events, func(_ *auditapi.Event, line []byte, err error) {
		if err != nil {
			q.losses.add(log.PluginName, err, 1)
			return
		}
		if err := q.add(line); err != nil {
			q.losses.add(buffered.PluginName, err, 1)
		}
	})
	return true
}

// add has a line wait; the error says why it may not.
func (q *queuedLines) add(line []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return errEnded
	case q.lines >= q.limit, q.bytes+len(line) > maxWaiting:
		return errFull
	}
	last := len(q.waiting) - 1
	switch {
	case last < 0:
		q.begin(line)
		poke(q.wake)
	case len(q.waiting[last].data)+len(line) > cap(q.waiting[last].data):
		q.begin(line)
		poke(q.full)
	default:
		q.waiting[last].data = append(q.waiting[last].data, line...)
		q.waiting[last].lines++
	}
	q.lines++
	q.bytes += len(line)
	return nil
}

// begin begins a chunk with a line. A line that is larger than one has its own.
func (q *queuedLines) begin(line []byte) {
	var room []byte
	switch n := len(q.free); {
	case len(line) > writeBytes:
	case n > 0:
		room, q.free = q.free[n-1], q.free[:n-1]
	default:
		room = make([]byte, 0, writeBytes)
	}
	q.waiting = append(q.waiting, chunk{append(room, line...), 1})
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run implements audit.Backend.
func (q *queuedLines) Run(stop <-chan struct{}) error {
	go func() {
		defer close(q.ended)
		gathered := time.NewTimer(gatherFor)
		defer gathered.Stop()
		for {
			select {
			case <-q.wake:
			case <-stop:
				q.mu.Lock()
				q.closed = true
				q.mu.Unlock()
				q.writeAll()
				return
			}
			gathered.Reset(gatherFor)
			select {
			case <-gathered.C:
			case <-q.full:
			case <-stop: // the next turn is the last
			}
			q.writeAll()
		}
	}()
	return nil
}

// writeAll writes what waits.
func (q *queuedLines) writeAll() {
	q.mu.Lock()
	batch := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	for _, c := range batch {
		if _, err := q.out.Write(c.data); err != nil {
			q.losses.add(log.PluginName, err, c.lines)
		}
		q.written(c)
	}
}

// written takes back a chunk.
func (q *queuedLines) written(c chunk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines -= c.lines
	q.bytes -= len(c.data)
	if cap(c.data) == writeBytes && len(q.free) < keptChunks {
		q.free = append(q.free, c.data[:0])
	}
}

// count is how many lines wait, or are being written.
func (q *queuedLines) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lines
}

// Shutdown returns when everything has been written.
func (q *queuedLines) Shutdown() { <-q.ended }

func (q *queuedLines) String() string { return buffered.PluginName + "<" + log.PluginName + ">" }
