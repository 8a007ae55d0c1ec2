package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/log"
)

const (
	// writeBytes bounds one write, unless it is a single line.
	writeBytes = 64 << 10
	// writeDelay is how long the first line waits for others, so that a busy server
	// does not make a system call for every request.
	writeDelay = 5 * time.Millisecond
)

// encodeEvent returns the event as a line of JSON, as upstream's encoder does. It omits
// upstream's scheme and serializer, which take longer than the encoding itself.
func encodeEvent(e *auditapi.Event) ([]byte, error) {
	var versioned auditv1.Event
	if err := auditv1.Convert_audit_Event_To_v1_Event(e, &versioned, nil); err != nil {
		return nil, err
	}
	versioned.TypeMeta = eventType
	buffer := encodeBuffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= writeBytes {
			encodeBuffers.Put(buffer)
		}
	}()
	buffer.Reset()
	if err := json.NewEncoder(buffer).Encode(&versioned); err != nil {
		return nil, err
	}
	return bytes.Clone(buffer.Bytes()), nil
}

var (
	encodeBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}
	eventType     = metav1.TypeMeta{APIVersion: eventVersion.String(), Kind: "Event"}
)

// queuedLog is the log in mode batch: requests encode their events, and one goroutine
// writes them. If the file is slow, lines beyond the limits on their number and bytes are
// dropped and counted.
type queuedLog struct {
	out    io.Writer
	losses *losses
	lines  chan []byte
	bytes  budget // of lines
	batch  []byte // used by the writing goroutine only
	ended  chan struct{}

	mu     sync.RWMutex
	closed bool
}

func newQueuedLog(out io.Writer, limit int, losses *losses) *queuedLog {
	return &queuedLog{out: out, losses: losses, lines: make(chan []byte, limit), bytes: budget{limit: maxWaiting}, ended: make(chan struct{})}
}

// ProcessEvents implements audit.Sink. It never blocks.
func (q *queuedLog) ProcessEvents(events ...*auditapi.Event) bool {
	for _, event := range events {
		if line, err := encodeEvent(event); err != nil {
			q.losses.add(log.PluginName, err, 1)
		} else if err := q.add(line); err != nil {
			q.losses.add(buffered.PluginName, err, 1)
		}
	}
	return true
}

// add queues a line; the error says why it does not.
func (q *queuedLog) add(line []byte) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	switch {
	case q.closed:
		return errEnded
	case !q.bytes.take(int64(len(line))):
		return errFull
	}
	select {
	case q.lines <- line:
		return nil
	default:
		q.bytes.give(int64(len(line)))
		return errFull
	}
}

// Run implements audit.Backend.
func (q *queuedLog) Run(stop <-chan struct{}) error {
	go func() {
		defer close(q.ended)
		for {
			select {
			case line := <-q.lines:
				select {
				case <-time.After(writeDelay):
				case <-stop:
				}
				q.writeAll(line)
			case <-stop:
				q.mu.Lock()
				q.closed = true
				q.mu.Unlock()
				q.writeAll(nil)
				return
			}
		}
	}()
	return nil
}

// writeAll writes a line, if it is not nil, and those in the queue.
func (q *queuedLog) writeAll(first []byte) {
	n := 0
	add := func(line []byte) {
		if n > 0 && len(q.batch)+len(line) > writeBytes {
			q.write(n)
			n = 0
		}
		q.batch = append(q.batch, line...)
		n++
	}
	if first != nil {
		add(first)
	}
	for {
		select {
		case line := <-q.lines:
			add(line)
			continue
		default:
		}
		break
	}
	if n > 0 {
		q.write(n)
	}
}

// write writes the batch, which has n lines, and empties it.
func (q *queuedLog) write(n int) {
	if _, err := q.out.Write(q.batch); err != nil {
		q.losses.add(log.PluginName, err, n)
	}
	q.bytes.give(int64(len(q.batch)))
	if q.batch = q.batch[:0]; cap(q.batch) > 2*writeBytes {
		q.batch = nil
	}
}

// count returns the number of lines in the queue.
func (q *queuedLog) count() int { return len(q.lines) }

// Shutdown returns when everything has been written.
func (q *queuedLog) Shutdown() { <-q.ended }

func (q *queuedLog) String() string { return buffered.PluginName + "<" + log.PluginName + ">" }
