package audit

import (
	"bytes"
	"io"
	"sync"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/log"
)

const (
	// writeBytes is how much is written at once, if it is more than one line.
	writeBytes = 64 << 10
	// keptBuffer is the largest buffer that is kept for the next lines.
	keptBuffer = 1 << 20
)

// lines is the log of events in JSON, where every request waits for its own.
type lines struct {
	out io.Writer
	mu  sync.Mutex // one line after the other
}

// ProcessEvents implements audit.Sink.
func (l *lines) ProcessEvents(events ...*auditapi.Event) bool {
	written := true
	for _, event := range events {
		line, err := appendEvent(nil, event)
		if err == nil {
			l.mu.Lock()
			_, err = l.out.Write(line)
			l.mu.Unlock()
		}
		if err != nil {
			audit.HandlePluginError(log.PluginName, err, event)
			written = false
		}
	}
	return written
}

func (l *lines) Run(<-chan struct{}) error { return nil }
func (l *lines) Shutdown()                 {}
func (l *lines) String() string            { return log.PluginName }

// queuedLines is the log of events in JSON where nobody waits for it: events are
// encoded at once, which takes less than a copy of them would, and written by one
// goroutine, as many together as have come up.
type queuedLines struct {
	out    io.Writer
	limit  int // lines
	losses *losses
	wake   chan struct{}
	ended  chan struct{}
	// scratch has buffers (*[]byte) to encode in.
	scratch sync.Pool

	mu      sync.Mutex
	waiting []byte // whole lines
	lines   int    // in waiting, and being written
	closed  bool
}

func newQueuedLines(out io.Writer, limit int, losses *losses) *queuedLines {
	return &queuedLines{
		out: out, limit: limit, losses: losses, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		scratch: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// ProcessEvents implements audit.Sink.
func (q *queuedLines) ProcessEvents(events ...*auditapi.Event) bool {
	scratch := q.scratch.Get().(*[]byte)
	defer q.scratch.Put(scratch)
	for _, event := range events {
		line, err := appendEvent((*scratch)[:0], event)
		if err != nil {
			q.losses.add(log.PluginName, err, 1)
			continue
		}
		if cap(line) <= writeBytes {
			*scratch = line
		}
		if err := q.add(line); err != nil {
			q.losses.add(buffered.PluginName, err, 1)
		}
	}
	return true
}

// add has a line wait; the error says why it may not.
func (q *queuedLines) add(line []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return errEnded
	case q.lines >= q.limit, len(q.waiting)+len(line) > maxWaiting:
		return errFull
	}
	q.lines++
	q.waiting = append(q.waiting, line...)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// Run implements audit.Backend.
func (q *queuedLines) Run(stop <-chan struct{}) error {
	go func() {
		defer close(q.ended)
		var buffer []byte
		for {
			select {
			case <-q.wake:
				buffer = q.writeAll(buffer)
			case <-stop:
				q.mu.Lock()
				q.closed = true
				q.mu.Unlock()
				q.writeAll(buffer)
				return
			}
		}
	}()
	return nil
}

// writeAll writes what waits; buffer is for what comes meanwhile. It returns one
// for the next time.
func (q *queuedLines) writeAll(buffer []byte) []byte {
	q.mu.Lock()
	batch := q.waiting
	q.waiting = buffer[:0]
	q.mu.Unlock()
	n := bytes.Count(batch, []byte{'\n'})
	for rest := batch; len(rest) > 0; {
		end := cutLines(rest)
		if _, err := q.out.Write(rest[:end]); err != nil {
			q.losses.add(log.PluginName, err, bytes.Count(rest[:end], []byte{'\n'}))
		}
		rest = rest[end:]
	}
	q.mu.Lock()
	q.lines -= n
	q.mu.Unlock()
	if cap(batch) > keptBuffer {
		return nil
	}
	return batch
}

// cutLines returns how much to write at once: whole lines.
func cutLines(lines []byte) int {
	if len(lines) <= writeBytes {
		return len(lines)
	}
	if end := bytes.LastIndexByte(lines[:writeBytes], '\n'); end >= 0 {
		return end + 1
	}
	return bytes.IndexByte(lines, '\n') + 1
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
