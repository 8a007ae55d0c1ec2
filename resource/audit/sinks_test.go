package audit

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
)

// In mode batch a slow file delays no request; lines beyond the limit are dropped and
// counted; the others are written in order, whole lines at a time.
func TestQueuedLogOfASlowFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowFile{entered: make(chan struct{}, 100), release: make(chan struct{})}
		var logged strings.Builder
		losses, err := newLosses(slog.New(slog.NewTextHandler(&logged, nil)))
		if err != nil {
			t.Fatal(err)
		}
		before := lost(t, nil, "buffered")
		q := newQueuedLog(out, 10, losses)
		stop := make(chan struct{})
		_ = q.Run(stop)
		q.ProcessEvents(&auditapi.Event{AuditID: "0"})
		<-out.entered
		for i := range 12 {
			q.ProcessEvents(&auditapi.Event{AuditID: "1", RequestURI: strings.Repeat("x", i*writeBytes/8)})
		}
		if got := lost(t, nil, "buffered") - before; got != 2 {
			t.Errorf("%v lines are lost", got)
		}
		close(out.release)
		close(stop)
		q.Shutdown()
		if n := strings.Count(out.all, "\n"); n != 11 || q.count() != 0 || q.bytes.used.Load() != 0 {
			t.Errorf("%d lines were written, %d and %d bytes are queued", n, q.count(), q.bytes.used.Load())
		}
		for _, part := range out.parts {
			if !strings.HasSuffix(part, "}\n") || len(part) > writeBytes && strings.Count(part, "\n") != 1 {
				t.Errorf("one write has %d bytes, of %d lines", len(part), strings.Count(part, "\n"))
			}
		}
		time.Sleep(complainEvery)
		if q.ProcessEvents(&auditapi.Event{}); lost(t, nil, "buffered")-before != 3 {
			t.Error("an event after the end is not counted as lost")
		}
		if got := logged.String(); strings.Count(got, errFull.Error()) != 1 || strings.Count(got, errEnded.Error()) != 1 {
			t.Errorf("logged %s", got)
		}
	})
}

// Several lines are written together, and no line waits for long.
func TestQueuedLogWritesLinesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowFile{entered: make(chan struct{}, 1000), release: make(chan struct{})}
		close(out.release)
		q := newQueuedLog(out, 10000, nil)
		stop := make(chan struct{})
		_ = q.Run(stop)
		for range 100 {
			q.ProcessEvents(&auditapi.Event{})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(writeDelay)
		synctest.Wait()
		if n := strings.Count(out.all, "\n"); n != 100 || len(out.parts) > 25 || len(out.parts) < 10 {
			t.Errorf("%d lines were written in %d pieces", n, len(out.parts))
		}
		close(stop)
		q.Shutdown()
	})
}

// The lines of a file that hangs are bounded by bytes.
func TestQueuedLogIsBoundedByBytes(t *testing.T) {
	q := newQueuedLog(nil, 1000, nil)
	line := make([]byte, 1<<20)
	for i := range maxWaiting / len(line) {
		if err := q.add(line); err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
	}
	if err := q.add(line[:1]); err != errFull {
		t.Errorf("one more: %v", err)
	}
}

// slowFile is a file whose writes wait.
type slowFile struct {
	entered, release chan struct{}
	all              string
	parts            []string
}

func (f *slowFile) Write(p []byte) (int, error) {
	f.entered <- struct{}{}
	<-f.release
	f.all += string(p)
	f.parts = append(f.parts, string(p))
	return len(p), nil
}

// What waits for a sink is bounded by bytes, too: then objects are left out, and
// the rest is told.
func TestBacklogBytes(t *testing.T) {
	var got []*auditapi.Event
	b := newBacklog(10, nil)
	b.bytes.limit = 10
	b.next = sinkFunc(func(e *auditapi.Event) { got = append(got, e) })
	object := &runtime.Unknown{Raw: []byte("12345678")}
	b.ProcessEvents(&auditapi.Event{RequestObject: object}, &auditapi.Event{ResponseObject: object, Annotations: map[string]string{"a": "b"}}, &auditapi.Event{})
	if len(got) != 3 || got[0].RequestObject == nil || got[1].ResponseObject != nil || len(got[1].Annotations) != 2 ||
		got[1].Annotations["audit.k8s.io/truncated"] != "true" || got[2].Annotations != nil {
		t.Fatalf("got %+v", got)
	}
	b.taker(sinkFunc(func(*auditapi.Event) {}), 1).ProcessEvents(got...)
	if b.events.Load() != 0 || b.bytes.used.Load() != 0 {
		t.Errorf("%d events and %d bytes are still counted", b.events.Load(), b.bytes.used.Load())
	}
}

// However long a webhook hangs, so many batches are with it and no more: the rest
// waits where it is counted.
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
