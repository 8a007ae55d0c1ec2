package watchcache

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"portico/resource"
)

// The memory of an object besides its bytes: 290 bytes for the object, 320 for the texts of
// its header, 128 for its labels (as a map, 340), 180 for its path, its item in the tree and
// its change in the event log. Rounding by the allocator counts, too.
func TestCostOfObject(t *testing.T) {
	const (
		objects = 5000
		most    = 1000
		text    = `{"apiVersion":"example.com/v1","kind":"Bakery","metadata":{"annotations":{"a":"%s"},"creationTimestamp":"2024-05-01T05:00:00Z",` +
			`"generation":1,"labels":{"app.kubernetes.io/name":"bakery","app.kubernetes.io/instance":"bakery-%d","team":"bread","zone":"z%d"},` +
			`"name":"bakery-%d","namespace":"default","uid":"7f3c2b1a-0000-4000-8000-%012d"},"spec":{"size":"small"}}`
	)
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	c := New(Config{Logger: slog.New(slog.DiscardHandler)})
	sink{c}.Reset(1, nil)
	c.eventLog("example.com/bakeries/")
	before, bytes, annotation := heap(), 0, strings.Repeat("x", 2700)
	for i := range objects {
		o, err := resource.Parse(fmt.Appendf(nil, text, annotation, i, i%7, i, i))
		if err != nil {
			t.Fatal(err)
		}
		rev := int64(i + 10)
		o = o.WithRevision(rev)
		bytes += len(o.Data)
		sink{c}.Apply([]resource.Change{{Path: "example.com/bakeries/default/" + o.Name, Revision: rev, Object: o}})
	}
	if each := (heap() - before - bytes) / objects; each > most {
		t.Errorf("an object of %d bytes costs %d more bytes", bytes/objects, each)
	} else {
		t.Logf("an object of %d bytes costs %d more bytes", bytes/objects, each)
	}
	runtime.KeepAlive(c)
}
