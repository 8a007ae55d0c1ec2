package audit

import (
	"errors"
	"sync"
	"sync/atomic"

	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
)

const (
	// maxUnderWay bounds the concurrent batches to a webhook.
	maxUnderWay = 16
	// maxWaiting bounds the bytes of the objects of queued events, per sink.
	maxWaiting = 64 << 20
)

// annotationTruncated marks events that lost their objects, as upstream's truncation does.
const annotationTruncated = "audit.k8s.io/truncated"

// Why events are dropped: the queue is full, in upstream's words, or the sink has ended.
var (
	errFull  = errors.New("audit buffer queue blocked")
	errEnded = errors.New("the server has shut down, and the request did not end with it")
)

// budget is an amount that is shared.
type budget struct {
	limit int64
	used  atomic.Int64
	whole *budget // of which this is a share; nil: none
}

// take takes n if there is that much, and nothing otherwise.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit || b.whole != nil && !b.whole.take(n) {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) {
	b.used.Add(-n)
	if b.whole != nil {
		b.whole.give(n)
	}
}

// backlog bounds the number and bytes of the events that are queued for a sink or being
// sent. Upstream's buffer, behind it, bounds only the number of those that are in no
// batch.
type backlog struct {
	limit  int64
	losses *losses
	events atomic.Int64 // queued or being sent
	bytes  budget       // of their objects
	next   audit.Backend
}

func newBacklog(limit int64, losses *losses) *backlog {
	return &backlog{limit: limit, losses: losses, bytes: budget{limit: maxWaiting}}
}

// ProcessEvents queues events. It never blocks: without room, events are dropped and
// counted, or lose their objects.
func (b *backlog) ProcessEvents(events ...*auditapi.Event) bool {
	for _, event := range events {
		if b.events.Add(1) > b.limit {
			b.events.Add(-1)
			b.losses.add(buffered.PluginName, errFull, 1)
			continue
		}
		if size := objectBytes(event); size > 0 && !b.bytes.take(size) {
			event = withoutObjects(event)
		}
		b.next.ProcessEvents(event)
	}
	return true
}

// Run implements audit.Backend.
func (b *backlog) Run(stop <-chan struct{}) error { return b.next.Run(stop) }

// Shutdown implements audit.Backend.
func (b *backlog) Shutdown() { b.next.Shutdown() }

func (b *backlog) String() string { return b.next.String() }

// taker returns the sink of the backlog, which sends up to atOnce batches concurrently.
func (b *backlog) taker(sink audit.Backend, atOnce int) *taker {
	return &taker{Backend: sink, from: b, places: make(chan struct{}, atOnce)}
}

// taker sends batches to a sink.
type taker struct {
	audit.Backend
	from    *backlog
	places  chan struct{}
	sending sync.WaitGroup
}

// ProcessEvents sends a batch in the background once a slot is free; meanwhile events are
// queued. With one slot it waits for the sink.
func (t *taker) ProcessEvents(events ...*auditapi.Event) bool {
	if cap(t.places) == 1 {
		t.send(events)
		return true
	}
	t.places <- struct{}{}
	t.sending.Go(func() {
		defer func() { <-t.places }()
		t.send(events)
	})
	return true
}

func (t *taker) send(events []*auditapi.Event) {
	size := int64(0)
	for _, event := range events {
		size += objectBytes(event)
	}
	defer t.from.events.Add(-int64(len(events)))
	defer t.from.bytes.give(size)
	t.Backend.ProcessEvents(events...)
}

// Shutdown returns when all batches were sent.
func (t *taker) Shutdown() {
	t.sending.Wait()
	t.Backend.Shutdown()
}

// objectBytes returns the size of an event's objects.
func objectBytes(e *auditapi.Event) (n int64) {
	if e.RequestObject != nil {
		n += int64(len(e.RequestObject.Raw))
	}
	if e.ResponseObject != nil {
		n += int64(len(e.ResponseObject.Raw))
	}
	return n
}

// withoutObjects returns a copy of the event without its objects, marked as truncated.
func withoutObjects(e *auditapi.Event) *auditapi.Event {
	c := *e
	c.RequestObject, c.ResponseObject = nil, nil
	c.Annotations = make(map[string]string, len(e.Annotations)+1)
	for k, v := range e.Annotations {
		c.Annotations[k] = v
	}
	c.Annotations[annotationTruncated] = "true"
	return &c
}
