package handlers

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"portico/internal/testing/memstore"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
	"portico/resource/watchcache"
)

// event is an event as a client decodes it.
type event struct {
	Type   string
	Object struct {
		metav1.PartialObjectMetadata
		Code    int
		Message string
		Columns []metav1.TableColumnDefinition `json:"columnDefinitions"`
		Rows    []metav1.TableRow
	}
}

// short returns the type, kind and name of an event.
func (e event) short() string { return e.Type + " " + e.Object.Kind + " " + e.Object.Name }

// watching is an open watch.
type watching struct {
	t    testing.TB
	resp *http.Response
	*json.Decoder
}

// watch opens a watch; headers are name, value pairs.
func (b *bench) watch(path, accept string, headers ...string) *watching {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), "GET", b.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		data, _ := io.ReadAll(resp.Body)
		b.t.Fatalf("watch: %s %s", resp.Status, data)
	}
	return &watching{b.t, resp, json.NewDecoder(resp.Body)}
}

func (w *watching) next() event {
	w.t.Helper()
	var e event
	if err := w.Decode(&e); err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *watching) expect(want ...string) {
	w.t.Helper()
	for _, s := range want {
		if got := w.next().short(); got != s {
			w.t.Fatalf("event %q, want %q", got, s)
		}
	}
}

func (w *watching) end() {
	w.t.Helper()
	var e event
	if err := w.Decode(&e); err != io.EOF {
		w.t.Fatalf("after the end: %+v, %v", e, err)
	}
}

func TestWatch(t *testing.T) {
	b := newBench(t)
	first := b.put(b.configMaps, resttest.ConfigMap("a"))
	w := b.watch(inDefault+"configmaps?watch=1", "")
	if ct := w.resp.Header.Get("Content-Type"); ct != runtime.ContentTypeJSON {
		t.Errorf("content type %q", ct)
	}
	w.expect("ADDED ConfigMap a")
	changed := resttest.ConfigMap("a")
	changed.Data["x"] = "y"
	b.put(b.configMaps, changed)
	b.put(b.configMaps, resttest.ConfigMap("b"))
	b.remove(b.configMaps, "a")
	w.expect("MODIFIED ConfigMap a", "ADDED ConfigMap b", "DELETED ConfigMap a")

	// From a revision: only later events.
	w = b.watch(inDefault+"configmaps?watch=true&labelSelector=name%3Da&resourceVersion="+strconv.FormatInt(first.Revision, 10), "")
	w.expect("MODIFIED ConfigMap a", "DELETED ConfigMap a")

	// Legacy paths, of all objects and of one.
	b.watch("/api/v1/watch/configmaps", "").expect("ADDED ConfigMap b")
	w = b.watch("/api/v1/watch/namespaces/default/configmaps/c", "")
	b.put(b.configMaps, resttest.ConfigMap("c"))
	w.expect("ADDED ConfigMap c")
}

func TestWatchEndsInTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watch(inDefault+"configmaps?watch=1&timeoutSeconds=1", "")
	w.end()
	b = newBench(t, func(c *Config, _ *bench) { c.MinWatch = 10 * time.Millisecond })
	b.watch(inDefault+"configmaps?watch=1", "").end()
}

// A watch with a negative timeout ends at once.
func TestWatchWithNegativeTimeout(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	for _, query := range []string{"timeoutSeconds=-1", "resourceVersion=0&timeoutSeconds=-9223372036854775808", "resourceVersion=999999&timeoutSeconds=-5"} {
		if resp, body := b.do("GET", inDefault+"configmaps?watch=1&"+query); resp.StatusCode != 200 || body != "" {
			t.Errorf("%s: %s %s", query, resp.Status, body)
		}
	}
}

// Bookmarks mark the end of the initial events and the progress of the watch, for clients that
// request them (docs/wire.md 5.6).
func TestWatchBookmarks(t *testing.T) {
	t.Parallel()
	b, _ := newCachedBench(t, func(c *watchcache.Config) { c.BookmarkInterval = 10 * time.Millisecond })
	rev := strconv.FormatInt(b.put(b.configMaps, resttest.ConfigMap("a")).Revision, 10)
	const query = configMaps + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	w, without := b.watch(query+"&allowWatchBookmarks=true", ""), b.watch(query+"&timeoutSeconds=1", "")
	w.expect("ADDED ConfigMap a")
	for _, annotations := range []string{`,"annotations":{"k8s.io/initial-events-end":"true"}`, ""} {
		var raw struct {
			Type   string
			Object json.RawMessage
		}
		if err := w.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		if want := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"` + rev + `"` + annotations + `}}`; raw.Type != "BOOKMARK" || string(raw.Object) != want {
			t.Errorf("got %s %s, want the bookmark %s", raw.Type, raw.Object, want)
		}
	}
	without.expect("ADDED ConfigMap a")
	without.end()
}

func TestWatchTooOld(t *testing.T) {
	storage := memstore.New()
	kind := resttest.ConfigMaps()
	res := &rest.Resource{Kind: kind, Store: storage.Store(&kind.Info)}
	b := newBench(t, func(c *Config, _ *bench) { c.Resources = []*rest.Resource{res} })
	o := b.put(res, resttest.ConfigMap("a"))
	b.remove(res, "a")
	b.put(res, resttest.ConfigMap("a"))
	storage.Compact(storage.Revision())
	w := b.watch(inDefault+"configmaps?watch=1&resourceVersion="+strconv.FormatInt(o.Revision, 10), "")
	e := w.next()
	if e.Type != "ERROR" || e.Object.Kind != "Status" || e.Object.Code != 410 || !strings.Contains(e.Object.Message, "too old") {
		t.Fatalf("got %+v", e)
	}
	w.end()
}

func TestWatchTable(t *testing.T) {
	b := newBench(t)
	b.put(b.secrets, resttest.Secret("a"))
	b.put(b.secrets, resttest.Secret("b"))
	w := b.watch(inDefault+"secrets?watch=1&allowWatchBookmarks=true&includeObject=None", tableAccept)
	for i, want := range []string{"ADDED a", "ADDED b", "BOOKMARK "} {
		e := w.next()
		if len(e.Object.Rows) != 1 || e.Object.Kind != "Table" || len(e.Object.Columns) != map[bool]int{true: 2, false: 0}[i == 0] || i > 0 && e.Object.Columns != nil {
			t.Fatalf("event %d: %+v", i, e)
		}
		row := e.Object.Rows[0]
		if got := e.Type + " " + row.Cells[0].(string); got != want {
			t.Errorf("event %q, want %q", got, want)
		}
		if e.Type == "BOOKMARK" && !strings.Contains(string(row.Object.Raw), "initial-events-end") {
			t.Errorf("bookmark row %s", row.Object.Raw)
		}
	}
}

func TestWatchPartial(t *testing.T) {
	b := newBench(t)
	b.put(b.secrets, resttest.Secret("a"))
	w := b.watch(inDefault+"secrets?watch=1&allowWatchBookmarks=true", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	w.expect("ADDED PartialObjectMetadata a", "BOOKMARK PartialObjectMetadata ")
}

func TestWatchProtobuf(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	w := b.watch(inDefault+"configmaps?watch=1&allowWatchBookmarks=true", runtime.ContentTypeProtobuf+";stream=watch")
	if ct := w.resp.Header.Get("Content-Type"); ct != runtime.ContentTypeProtobuf+";stream=watch" {
		t.Errorf("content type %q", ct)
	}
	body := bufio.NewReader(w.resp.Body)
	for _, want := range []string{"ADDED", "BOOKMARK"} {
		var size uint32
		if err := binary.Read(body, binary.BigEndian, &size); err != nil {
			t.Fatal(err)
		}
		message := make([]byte, size)
		if _, err := io.ReadFull(body, message); err != nil {
			t.Fatal(err)
		}
		var e metav1.WatchEvent
		if err := e.Unmarshal(message); err != nil {
			t.Fatal(err)
		}
		obj, _, err := protobuf.NewSerializer(resttest.CoreScheme(), resttest.CoreScheme()).Decode(e.Object.Raw, nil, nil)
		if err != nil || e.Type != want || obj.(*corev1.ConfigMap).ResourceVersion == "" {
			t.Fatalf("event %s %+v, %v", e.Type, obj, err)
		}
	}
}

func TestWatchEncodingFailure(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	b.putBad()
	w := b.watch(inDefault+"configmaps?watch=1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	w.expect("ADDED PartialObjectMetadata a", "ADDED PartialObjectMetadata b")
	data, err := io.ReadAll(b.watch(configMaps+"?watch=1", runtime.ContentTypeProtobuf).resp.Body)
	if err != nil || !strings.Contains(string(data), "value of a") || !strings.Contains(string(data), "ERROR") {
		t.Errorf("got %q, %v, want the good object and then the error", data, err)
	}
}

func TestWatchStopsWhenTheClientGoes(t *testing.T) {
	b := newBench(t)
	w := b.watch(inDefault+"configmaps?watch=1", "")
	w.resp.Body.Close()
	b.Close() // waits for every request to end
}
