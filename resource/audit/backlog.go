package audit

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"portico/resource/fairshare"
)

const (
	// maxUnderWay bounds the concurrent batches to a webhook.
	maxUnderWay = 16
	// maxWaiting bounds the bytes of queued events, per sink.
	maxWaiting = 64 << 20
)

// annotationTruncated marks events that lost their objects, as upstream's truncation does.
const annotationTruncated = "audit.k8s.io/truncated"

// errFull is the reason for dropped events, with upstream's text.
var errFull = errors.New("audit buffer queue blocked")

// backlog bounds the number and bytes of the events that are queued for a sink or being
// sent. Upstream's buffer, behind it, bounds only the number of those that are in no
// batch.
type backlog struct {
	limit  int64
	losses *losses
	events atomic.Int64     // queued or being sent
	bytes  *fairshare.Limit // eventBytes of them
	next   audit.Backend
}

func newBacklog(limit int64, losses *losses) *backlog {
	return &backlog{limit: limit, losses: losses, bytes: fairshare.New(maxWaiting, 0)}
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
		if !b.bytes.TakeN("", eventBytes(event)) {
			event = withoutObjects(event)
			if !b.bytes.TakeN("", eventBytes(event)) {
				b.events.Add(-1)
				b.losses.add(buffered.PluginName, errFull, 1)
				continue
			}
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

// taker returns a sink that sends up to atOnce batches of the backlog concurrently.
func (b *backlog) taker(sink audit.Backend, atOnce int) *taker {
	return &taker{Backend: sink, from: b, slots: make(chan struct{}, atOnce)}
}

// taker sends batches to a sink.
type taker struct {
	audit.Backend
	from    *backlog
	slots   chan struct{}
	sending sync.WaitGroup
}

// ProcessEvents sends a batch in the background once a slot is free; meanwhile events are
// queued. With one slot it waits for the sink.
func (t *taker) ProcessEvents(events ...*auditapi.Event) bool {
	if cap(t.slots) == 1 {
		t.send(events)
		return true
	}
	t.slots <- struct{}{}
	t.sending.Go(func() {
		defer func() { <-t.slots }()
		t.send(events)
	})
	return true
}

func (t *taker) send(events []*auditapi.Event) {
	size := 0
	for _, event := range events {
		size += eventBytes(event)
	}
	defer t.from.events.Add(-int64(len(events)))
	defer t.from.bytes.ReleaseN("", size)
	t.Backend.ProcessEvents(events...)
}

// Shutdown returns when all batches were sent.
func (t *taker) Shutdown() {
	t.sending.Wait()
	t.Backend.Shutdown()
}

// eventBytes returns the size of the parts of an event that a client can make large: its
// objects, texts and annotations.
func eventBytes(e *auditapi.Event) int {
	n := len(e.RequestURI) + len(e.UserAgent)
	if e.ResponseStatus != nil {
		n += len(e.ResponseStatus.Message)
	}
	for key, value := range e.Annotations {
		n += len(key) + len(value)
	}
	if e.RequestObject != nil {
		n += len(e.RequestObject.Raw)
	}
	if e.ResponseObject != nil {
		n += len(e.ResponseObject.Raw)
	}
	return n
}

// longAnnotation is the length of a value of an annotation, in bytes, from which on an event without
// its objects loses it, too.
const longAnnotation = 1 << 10

// withoutObjects returns a copy of the event without its objects and long annotations, marked as
// truncated.
func withoutObjects(e *auditapi.Event) *auditapi.Event {
	c := *e
	c.RequestObject, c.ResponseObject, c.Annotations = nil, nil, map[string]string{annotationTruncated: "true"}
	for key, value := range e.Annotations {
		if len(value) >= longAnnotation {
			value = annotationOmitted
		}
		c.Annotations[key] = value
	}
	return &c
}

// logInterval is the shortest interval between two log lines about lost events.
const logInterval = time.Second

// losses counts lost events. Upstream logs each of them, which would double the load while
// a sink is away.
type losses struct {
	counter *metrics.CounterVec
	log     *slog.Logger
	sparing rate.Sometimes
	since   atomic.Int64 // losses that were not logged
}

// newLosses finds upstream's counter of lost events by registering another one of the same
// name.
func newLosses(log *slog.Logger) (*losses, error) {
	own := metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "apiserver_audit", Name: "error_total", StabilityLevel: metrics.ALPHA,
		Help: "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
	}, []string{"plugin"})
	var registered prometheus.AlreadyRegisteredError
	if err := legacyregistry.Register(own); errors.As(err, &registered) {
		if counter, ok := registered.ExistingCollector.(*metrics.CounterVec); ok {
			return &losses{counter: counter, log: log, sparing: rate.Sometimes{Interval: logInterval}}, nil
		}
	}
	return nil, errors.New("find the counter of lost audit events")
}

// add counts n events that a plugin lost.
func (l *losses) add(plugin string, err error, n int) {
	l.counter.WithLabelValues(plugin).Add(float64(n))
	l.since.Add(int64(n))
	l.sparing.Do(func() {
		l.log.Error("audit events are lost", "plugin", plugin, "err", err, "events", l.since.Swap(0))
	})
}
