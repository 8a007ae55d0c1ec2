package watchstream

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/form"
	"portico/resource/rest/resttest"
)

func newServer() *Server {
	return NewServer(form.NewCache(1<<20), slog.New(slog.DiscardHandler))
}

// A bookmark before the end of the initial events would make the client resume without
// objects that were not sent.
func TestNoBookmarkDuringInitialEvents(t *testing.T) {
	s := newServer().newStream(Options{Kind: resttest.ConfigMaps(), Version: "v1", Initial: true, Bookmarks: true})
	var sent string
	s.send = func(frames []byte, _ []int) error { sent += string(frames); return nil }
	o := resttest.Stored(t, s.Kind, resttest.ConfigMap("a"), 9)
	if err := s.write([]resource.Event{{Type: resource.Added, Object: o, Revision: 9}}); err != nil {
		t.Fatal(err)
	}
	if s.synced {
		t.Fatal("synced before the Synced event")
	}
	if err := s.write([]resource.Event{{Type: resource.Synced, Revision: 12}}); err != nil {
		t.Fatal(err)
	}
	if !s.synced || strings.Count(sent, "BOOKMARK") != 1 {
		t.Fatalf("synced %v: %s", s.synced, sent)
	}
}

// counting counts the objects that a codec encodes.
type counting struct {
	rest.Codec
	n atomic.Int64
}

func (c *counting) Encode(obj runtime.Object, gvk schema.GroupVersionKind, mediaType string) ([]byte, error) {
	c.n.Add(1)
	return c.Codec.Encode(obj, gvk, mediaType)
}

// All watches of a form are sent the same bytes, encoded once: the object, its frame, and
// the compressed frame.
func TestEventsAreEncodedOnce(t *testing.T) {
	const watches = 300
	server := newServer()
	k := resttest.Secrets()
	codec := &counting{Codec: k.Codec}
	k.Codec = codec
	for size := range 2 {
		obj := resttest.Secret("a")
		obj.Data["big"] = bytes.Repeat([]byte("x"), size*frameBytes)
		e := resource.Event{Type: resource.Modified, Object: resttest.Stored(t, k, obj, 9), Revision: 9}
		for name, tc := range map[string]struct {
			f      response.Format
			packed bool
			want   int64
		}{
			"stored": {response.Format{}, false, 0}, "protobuf": {response.Format{Media: response.Protobuf}, false, 1},
			"metadata": {response.Format{Transform: response.AsPartial, MetaVersion: "v1"}, false, 0}, "packed": {response.Format{}, true, 0},
		} {
			codec.n.Store(0)
			var sent sync.Map
			var all sync.WaitGroup
			for range watches {
				all.Go(func() {
					s := server.newStream(Options{Kind: k, Version: "v1", Format: tc.f, Packed: tc.packed})
					s.framed = true
					s.send = func(frames []byte, _ []int) error {
						sent.Store(unsafe.SliceData(frames), true)
						return nil
					}
					if err := s.write([]resource.Event{e}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			different := 0
			sent.Range(func(any, any) bool { different++; return true })
			if different != 1 || codec.n.Load() != tc.want {
				t.Errorf("%s, size %d: %d different frames, encoded %d times", name, size, different, codec.n.Load())
			}
		}
	}
}

// Watches share the rows of tables with the same objects, for one second: cells may be ages.
func TestTableFramesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, k := newServer(), resttest.Secrets()
		first := resource.Event{Type: resource.Added, Object: resttest.Stored(t, k, resttest.Secret("a"), 1)}
		e := resource.Event{Type: resource.Added, Object: resttest.Stored(t, k, resttest.Secret("b"), 2)}
		sent := map[*byte]bool{}
		watch := func(include metav1.IncludeObjectPolicy) {
			t.Helper()
			r := httptest.NewRequest("GET", "/?includeObject="+string(include), nil)
			tables, err := form.NewTables(r, server.forms, k, "v1", "v1")
			if err != nil {
				t.Fatal(err)
			}
			s := server.newStream(Options{Kind: k, Version: "v1", Format: response.Format{Transform: response.AsTable, MetaVersion: "v1"}, Tables: tables})
			var last []byte
			s.send = func(frames []byte, _ []int) error { last = frames; return nil }
			for _, event := range []resource.Event{first, e} { // the first has the columns
				if err := s.write([]resource.Event{event}); err != nil {
					t.Fatal(err)
				}
			}
			sent[unsafe.SliceData(last)] = true
		}
		expect := func(n int, when string) {
			t.Helper()
			if len(sent) != n {
				t.Errorf("%s: %d different frames, want %d", when, len(sent), n)
			}
		}
		for range 10 {
			watch(metav1.IncludeMetadata)
		}
		expect(1, "the same includeObject")
		watch(metav1.IncludeObject)
		expect(2, "another includeObject")
		time.Sleep(time.Second)
		watch(metav1.IncludeMetadata)
		expect(3, "a second later")
	})
}

// Events are counted for every watch, with their size before compression, whether their frames
// are shared or initial events.
func TestMetricsOfEvents(t *testing.T) {
	server, k := newServer(), resttest.Secrets()
	large := resttest.Secret("b")
	large.Data = map[string][]byte{"k": make([]byte, 200<<10)}
	events := []resource.Event{
		{Type: resource.Added, Object: resttest.Stored(t, k, resttest.Secret("a"), 1)},
		{Type: resource.Added, Object: resttest.Stored(t, k, large, 2)},
	}
	var want float64
	for _, opts := range []Options{{}, {Packed: true}, {Initial: true}, {Initial: true, Packed: true}} {
		opts.Kind, opts.Version = k, "v1"
		s := server.newStream(opts)
		s.send = func(frames []byte, _ []int) error {
			var in io.Reader = bytes.NewReader(frames)
			if opts.Packed {
				z, err := gzip.NewReader(in)
				if err != nil {
					t.Fatal(err)
				}
				in = z
			}
			n, err := io.Copy(io.Discard, in)
			want += float64(n)
			return err
		}
		if err := s.write(events); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(server.Metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_watch_events_sizes" {
			continue
		}
		h := f.Metric[0].GetHistogram()
		if h.GetSampleSum() != want || h.GetSampleCount() != 8 || h.GetBucket()[0].GetCumulativeCount() != 4 {
			t.Errorf("%v, want 8 events of %v bytes, 4 of them small", h, want)
		}
		return
	}
	t.Error("no sizes")
}

func TestSeriesAreBounded(t *testing.T) {
	m := newMetrics()
	for i := range maxSeries + 100 {
		m.of(schema.GroupVersionResource{Resource: fmt.Sprint(i)})
	}
	if n := len(m.series); n != maxSeries+1 {
		t.Errorf("%d series", n)
	}
}

// The deadline of a message does not apply to the answers to later pings.
func TestWebSocketAnswersPingsAfterMessages(t *testing.T) {
	const timeout = 20 * time.Millisecond
	served := make(chan struct{})
	server := httptest.NewServer(websocket.Handler(func(ws *websocket.Conn) {
		s := &socket{ws, timeout}
		if err := s.send([]byte("onetwo"), []int{3, 6}); err != nil {
			t.Error(err)
		}
		close(served)
		var ignored []byte
		for websocket.Message.Receive(ws, &ignored) == nil {
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	<-served
	time.Sleep(2 * timeout)
	fmt.Fprint(conn, "\x89\x80\x01\x02\x03\x04\x88\x80\x01\x02\x03\x04") // ping, close
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(answer), "\x03one\x81\x03two\x8a\x00") {
		t.Errorf("%q, %v", answer, err)
	}
}
