package audit

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
)

// Queued events are bounded by bytes too: beyond the bound they lose their objects and long
// annotations, and are dropped if that is not enough.
func TestBacklogBytes(t *testing.T) {
	var got []*auditapi.Event
	b := newBacklog(10, nil)
	b.bytes.Set(80)
	b.next = sinkFunc(func(e *auditapi.Event) { got = append(got, e) })
	object := &runtime.Unknown{Raw: []byte("123456789012345678901234567890")}
	b.ProcessEvents(&auditapi.Event{RequestObject: object}, &auditapi.Event{ResponseObject: object, Annotations: map[string]string{"a": "b", "c": strings.Repeat("x", longAnnotation)}}, &auditapi.Event{})
	if len(got) != 3 || got[0].RequestObject == nil || got[1].ResponseObject != nil || len(got[1].Annotations) != 3 || got[1].Annotations["c"] != annotationOmitted ||
		got[1].Annotations["audit.k8s.io/truncated"] != "true" || got[2].Annotations != nil {
		t.Fatalf("got %+v", got)
	}
	var err error
	if b.losses, err = newLosses(quiet()); err != nil {
		t.Fatal(err)
	}
	before := lost(t, nil, "buffered")
	b.ProcessEvents(&auditapi.Event{RequestURI: "/api/v1/pods"})
	if got := lost(t, nil, "buffered") - before; got != 1 {
		t.Errorf("%v events with long URIs are lost", got)
	}
	b.taker(sinkFunc(func(*auditapi.Event) {}), 1).ProcessEvents(got...)
	if b.events.Load() != 0 || b.bytes.InUse() != 0 {
		t.Errorf("%d events and %d bytes are still counted", b.events.Load(), b.bytes.InUse())
	}
}

// While a webhook hangs, maxUnderWay batches are being sent, and the other events are
// queued.
func TestBatchesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var under atomic.Int64
		release := make(chan struct{})
		hangs := sinkFunc(func(*auditapi.Event) { under.Add(1); <-release })
		a := &Auditor{}
		sink := a.deliver(hangs, Delivery{Mode: ModeBatch, Batch: Batch{BufferSize: 50, MaxSize: 1}}, maxUnderWay)
		stop := make(chan struct{})
		if err := sink.Run(stop); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			sink.ProcessEvents(&auditapi.Event{})
		}
		synctest.Wait()
		if got := under.Load(); got != maxUnderWay || a.waiting[0]() != 50 {
			t.Errorf("%d batches are under way, and %d events wait", got, a.waiting[0]())
		}
		close(release)
		close(stop)
		sink.Shutdown()
		if got := under.Load(); got != 50 || a.waiting[0]() != 0 {
			t.Errorf("%d events were delivered, and %d wait", got, a.waiting[0]())
		}
	})
}

type sinkFunc func(*auditapi.Event)

func (f sinkFunc) ProcessEvents(events ...*auditapi.Event) bool {
	for _, e := range events {
		f(e)
	}
	return true
}

func (sinkFunc) Run(<-chan struct{}) error { return nil }
func (sinkFunc) Shutdown()                 {}
func (sinkFunc) String() string            { return "test" }
