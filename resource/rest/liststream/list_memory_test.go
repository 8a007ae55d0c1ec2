package liststream

import (
	"fmt"
	"net/http/httptest"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// gauge is a ResponseWriter that measures the heap while a response is written.
type gauge struct {
	resttest.Discard
	next, step int64
	peak       uint64
}

func (g *gauge) Write(p []byte) (int, error) {
	n, err := g.Discard.Write(p)
	if g.Bytes >= g.next {
		g.next = g.Bytes + g.step
		g.peak = max(g.peak, liveHeap())
	}
	return n, err
}

// liveHeap returns the size of the heap without garbage, in bytes.
func liveHeap() uint64 {
	goruntime.GC()
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A list response takes little memory beside its objects.
func TestListsTakeLittleMemory(t *testing.T) {
	debug.SetGCPercent(20)
	defer debug.SetGCPercent(100)
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	asJSON, asProtobuf := rest.TypedJSON(resttest.CoreScheme(), gvk, nil), rest.Typed(resttest.CoreScheme(), gvk)
	const object = 100 << 10
	for _, c := range []struct {
		name    string
		codec   rest.Codec
		f       response.Format
		query   string
		gzip    bool
		total   int // bytes of objects
		atLeast int64
		most    uint64
	}{
		{name: "JSON as stored", codec: asJSON, total: 50 << 20, atLeast: 50 << 20, most: 4 << 20},
		{name: "custom", codec: resttest.Untyped{Codec: asJSON}, total: 50 << 20, atLeast: 50 << 20, most: 4 << 20},
		{name: "protobuf as stored", codec: asProtobuf, f: response.Format{Media: response.Protobuf}, total: 50 << 20, atLeast: 50 << 20, most: 4 << 20},
		{name: "gzip", codec: asJSON, gzip: true, total: 20 << 20, atLeast: 20 << 10, most: 6 << 20},
		{name: "JSON of protobuf", codec: asProtobuf, total: 80 << 20, atLeast: 79 << 20, most: formCache + 6<<20},
		{name: "indented", codec: asJSON, f: response.Format{Pretty: true}, total: 20 << 20, atLeast: 19 << 20, most: 6 << 20},
		{name: "YAML", codec: asJSON, f: response.Format{Media: response.YAML}, total: 6 << 20, atLeast: 5 << 20, most: 8 << 20},
		{name: "Table of objects", codec: asJSON, f: response.Format{Transform: response.AsTable, MetaVersion: "v1"}, query: "?includeObject=Object",
			total: 20 << 20, atLeast: 19 << 20, most: 6 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind := resttest.ConfigMaps()
			kind.Codec = c.codec
			l := &resource.List{Revision: 1}
			cm := resttest.ConfigMap("a")
			cm.Data = map[string]string{"k": strings.Repeat("x", object)}
			o := resttest.Stored(t, kind, cm, 1)
			for i := range c.total / object {
				// Objects of their own, with bytes in common.
				l.Items = append(l.Items, &resource.Object{Header: o.Header, Encoding: o.Encoding, Data: o.Data})
				l.Items[i].Name = fmt.Sprint("a", i)
			}
			r := httptest.NewRequest("GET", "/api/v1/configmaps"+c.query, nil)
			if c.gzip {
				r.Header.Set("Accept-Encoding", "gzip")
			}
			w := &gauge{step: int64(c.total) / 16}
			if c.gzip {
				w.step = 16 << 10
			}
			before := liveHeap()
			if err := write(w, r, kind, Contents{List: l}, c.f); err != nil {
				t.Fatal(err)
			}
			goruntime.KeepAlive(l)
			if w.Bytes < c.atLeast {
				t.Errorf("%d bytes were sent", w.Bytes)
			}
			if w.peak == 0 || w.peak > before+c.most {
				t.Errorf("the heap grew from %d to %d bytes", before, w.peak)
			}
			t.Logf("%d MB in %d writes, heap grew by %d KB", w.Bytes>>20, w.Calls, (int64(w.peak)-int64(before))>>10)
		})
	}
}
