package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico/resource"
	"portico/resource/rest"
)

// gauge is a ResponseWriter that looks now and then how much of the heap is in
// use while a response is written.
type gauge struct {
	discard
	next, step int64
	peak       uint64
}

func newGauge(step int64) *gauge {
	return &gauge{discard: discard{header: http.Header{}}, step: step}
}

func (g *gauge) Write(p []byte) (int, error) {
	n, err := g.discard.Write(p)
	if g.bytes >= g.next {
		g.next = g.bytes + g.step
		g.peak = max(g.peak, liveHeap())
	}
	return n, err
}

// liveHeap is what is in use and no garbage.
func liveHeap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A list takes the memory of its objects, not of its bytes once more.
func TestListsTakeNoMemory(t *testing.T) {
	debug.SetGCPercent(20)
	defer debug.SetGCPercent(100)
	typed := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	const object = 100 << 10
	for _, c := range []struct {
		name    string
		codec   rest.Codec
		f       format
		query   string
		gzip    bool
		total   int // bytes of objects
		atLeast int64
		most    uint64
	}{
		{name: "JSON as stored", codec: rest.TypedJSON(coreScheme(), typed), total: 200 << 20, atLeast: 200 << 20, most: 4 << 20},
		{name: "custom", codec: custom{rest.TypedJSON(coreScheme(), typed)}, total: 200 << 20, atLeast: 200 << 20, most: 4 << 20},
		{name: "protobuf as stored", codec: rest.Typed(coreScheme(), typed), f: format{media: mediaProtobuf}, total: 200 << 20, atLeast: 200 << 20, most: 4 << 20},
		{name: "gzip", codec: rest.TypedJSON(coreScheme(), typed), gzip: true, total: 50 << 20, atLeast: 50 << 10, most: 6 << 20},
		{name: "JSON of protobuf", codec: rest.Typed(coreScheme(), typed), total: 80 << 20, atLeast: 79 << 20, most: defaultFormBytes + 6<<20},
		{name: "indented", codec: rest.TypedJSON(coreScheme(), typed), f: format{pretty: true}, total: 20 << 20, atLeast: 19 << 20, most: 6 << 20},
		{name: "YAML", codec: rest.TypedJSON(coreScheme(), typed), f: format{media: mediaYAML}, total: 6 << 20, atLeast: 5 << 20, most: 8 << 20},
		{name: "Table of objects", codec: rest.TypedJSON(coreScheme(), typed), f: format{transform: asTable, metaVersion: "v1"}, query: "?includeObject=Object",
			total: 20 << 20, atLeast: 19 << 20, most: 6 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind := configMaps()
			kind.Codec = c.codec
			l := &resource.List{Revision: 1}
			cm := configMap("a")
			cm.Data = map[string]string{"k": strings.Repeat("x", object)}
			o := stored(t, kind, cm, 1)
			for i := range c.total / object {
				// Objects of their own, with bytes in common.
				l.Items = append(l.Items, &resource.Object{Header: o.Header, Encoding: o.Encoding, Data: o.Data})
				l.Items[i].Name = fmt.Sprint("a", i)
			}
			r := httptest.NewRequest("GET", "/api/v1/configmaps"+c.query, nil)
			if c.gzip {
				r.Header.Set("Accept-Encoding", "gzip")
			}
			w := newGauge(int64(c.total) / 16)
			if c.gzip {
				w.step = 16 << 10
			}
			api := New(Config{})
			before := liveHeap()
			if err := api.sendList(w, r, resource.ParseAction(r), &rest.Resource{Kind: kind}, contents{List: l}, c.f); err != nil {
				t.Fatal(err)
			}
			runtime.KeepAlive(l)
			if w.bytes < c.atLeast {
				t.Errorf("%d bytes were sent", w.bytes)
			}
			if w.peak == 0 || w.peak > before+c.most {
				t.Errorf("the heap grew from %d to %d bytes", before, w.peak)
			}
			t.Logf("%d MB in %d writes, heap grew by %d KB", w.bytes>>20, w.calls, (int64(w.peak)-int64(before))>>10)
		})
	}
}
