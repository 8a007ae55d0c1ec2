package watchcache_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/watchcache"
)

// stuckFeed delivers one state and no changes.
type stuckFeed struct{ resource.Feed }

func (stuckFeed) Run(ctx context.Context, sink resource.FeedSink) error {
	sink.Reset(1, nil)
	<-ctx.Done()
	return ctx.Err()
}

// heapGauge discards a body and measures the heap meanwhile.
type heapGauge struct {
	*httptest.ResponseRecorder
	bytes, next int64
	peak        uint64
}

func (g *heapGauge) Write(p []byte) (int, error) {
	if g.bytes += int64(len(p)); g.bytes >= g.next {
		g.next = g.bytes + 8<<20
		g.peak = max(g.peak, heapInUse())
	}
	return len(p), nil
}

func heapInUse() uint64 {
	goruntime.GC()
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A list that the cache cannot answer is read from etcd in parts, and takes the memory of a
// few of them.
func TestListsFromBeneathTakeNoMemory(t *testing.T) {
	const objects, size = 700, 100 << 10
	client := newEtcd(t).open(t)
	c := running(t, watchcache.Config{Feed: stuckFeed{client.Feed()}, Store: client.Store, FreshTimeout: 10 * time.Millisecond})
	s := serve(t, c.Store)
	fillWith(t, s.store, objects, size)

	defer debug.SetGCPercent(debug.SetGCPercent(20))
	const asJSON = "application/json"
	for _, tt := range []struct {
		accept, query string
		objects       int64
	}{
		{asJSON, "", objects},
		{"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "", objects},
		{asJSON, "?labelSelector=half%3D1&limit=1000000000", objects / 2},
	} {
		before := heapInUse()
		w := &heapGauge{ResponseRecorder: httptest.NewRecorder(), next: 1}
		r := httptest.NewRequest("GET", "/api/v1/configmaps"+tt.query, nil)
		r.Header.Set("Accept", tt.accept)
		s.handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.bytes < 30*tt.objects || tt.accept == asJSON && w.bytes < tt.objects*size {
			t.Errorf("%s%s: %d with %d bytes", tt.accept, tt.query, w.Code, w.bytes)
		}
		if w.peak > before+64<<20 {
			t.Errorf("%s%s: the heap grew from %d to %d bytes for %d", tt.accept, tt.query, before, w.peak, w.bytes)
		}
		t.Logf("%d MB, heap grew by %d KB", w.bytes>>20, (int64(w.peak)-int64(before))>>10)
	}
}

// A list that is read in parts is the same list.
func TestParts(t *testing.T) {
	t.Parallel()
	client := newEtcd(t).open(t)
	c := running(t, watchcache.Config{Feed: stuckFeed{client.Feed()}, Store: client.Store, FreshTimeout: 10 * time.Millisecond})
	fillWith(t, client.Store(&configMaps().Info), parts, 100<<10)
	t.Run("of a page", func(t *testing.T) { testPartsOfAPage(t, serve(t, c.Store)) })
	t.Run("of a selection", func(t *testing.T) { testPartsOfASelection(t, client.Store(&configMaps().Info)) })
}

// parts is the number of objects of TestParts.
const parts = 260

func testPartsOfAPage(t *testing.T, s *served) {
	const partial = "PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	const inJSON, inProtobuf = "application/json;as=" + partial, "application/vnd.kubernetes.protobuf;as=" + partial
	for _, tt := range []struct {
		limit, skip, want int
		accept            string
	}{
		{50, 0, 50, inJSON}, {100, 0, 100, inJSON}, {101, 0, 101, inJSON}, {150, 0, 150, inProtobuf}, {1 << 30, 0, parts, inProtobuf},
		{110, 60, 110, inJSON}, {200, 60, 200, inJSON},
	} {
		query := fmt.Sprintf("?limit=%d", tt.limit)
		if tt.skip > 0 {
			query += "&continue=" + resource.EncodeContinue(resource.InconsistentRevision, fmt.Sprintf("default/x%05d", tt.skip-1))
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/api/v1/configmaps"+query, nil)
		r.Header.Set("Accept", tt.accept)
		s.handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", query, w.Code)
		}
		got := partialList(t, w.Body.Bytes())
		last, left := fmt.Sprintf("x%05d", tt.skip+tt.want-1), int64(parts-tt.skip-tt.want)
		if len(got.Items) != tt.want || got.Items[tt.want-1].Name != last {
			t.Errorf("%s: %d objects", query, len(got.Items))
		}
		if left == 0 && (got.Continue != "" || got.RemainingItemCount != nil) {
			t.Errorf("%s is not the last page: %+v", query, got.ListMeta)
		}
		if rev, err := strconv.ParseInt(got.ResourceVersion, 10, 64); err != nil || left > 0 &&
			(got.RemainingItemCount == nil || *got.RemainingItemCount != left || got.Continue != resource.EncodeContinue(rev, "default/"+last)) {
			t.Errorf("%s ends with %+v", query, got.ListMeta)
		}
	}
}

// The end of a page with a selector is known before the first part is sent.
func testPartsOfASelection(t *testing.T, store resource.Store) {
	odd := resource.Selector{Labels: labels.SelectorFromSet(labels.Set{"half": "1"})}
	for _, tt := range []struct {
		limit int64
		found int
		last  string // the token's; "" on the last page
	}{
		{100, 100, "x00199"}, {129, 129, "x00257"}, {130, 130, ""}, {1 << 30, 130, ""}, {0, 130, ""}, {40, 40, "x00079"},
	} {
		l, err := store.List(t.Context(), resource.ListOptions{Parts: true, Limit: tt.limit, Selector: odd})
		if err != nil {
			t.Fatal(err)
		}
		end := l.Continue
		if (l.Page != nil) != (tt.limit == 0 || tt.limit > 100) {
			t.Errorf("limit %d: %d objects in one part", tt.limit, len(l.Items))
		}
		if l.Page != nil {
			end = l.Page.Continue
		}
		want := ""
		if tt.last != "" {
			want = resource.EncodeContinue(l.Revision, "default/"+tt.last)
		}
		if end != want {
			t.Errorf("limit %d: the page ends with %q, want %q", tt.limit, end, want)
		}
		names := len(l.Items)
		for part := l; part.Continue != "" && l.Page != nil; names += len(part.Items) {
			if part, err = store.List(t.Context(), resource.ListOptions{Parts: true, Continue: part.Continue, Selector: odd}); err != nil {
				t.Fatal(err)
			}
		}
		if names < tt.found || l.Page == nil && names > tt.found {
			t.Errorf("limit %d: %d objects, want %d", tt.limit, names, tt.found)
		}
	}
}

// partialList reads a list in JSON or protobuf.
func partialList(t *testing.T, data []byte) (list metav1.PartialObjectMetadataList) {
	t.Helper()
	var envelope runtime.Unknown
	var err error
	if message, ok := bytes.CutPrefix(data, []byte("k8s\x00")); !ok {
		err = json.Unmarshal(data, &list)
	} else if err = envelope.Unmarshal(message); err == nil {
		err = list.Unmarshal(envelope.Raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// fillWith creates objects of about that size.
func fillWith(t *testing.T, store resource.Store, objects, size int) {
	t.Helper()
	text := strings.Repeat("x", size)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := w; i < objects; i += 8 {
				o, err := resource.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x%05d","namespace":"default","labels":{"half":"%d"}},"data":{"k":%q}}`, i, i%2, text))
				if err == nil {
					_, err = store.Create(t.Context(), o.Key(), o, 0)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}
