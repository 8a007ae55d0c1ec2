package watchcache

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"portico/resource"
)

// heapBytes returns the size of live objects.
func heapBytes() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The memory of an object besides its bytes: 256 bytes for the object, 200 for the texts of
// its header that its path does not have, 128 for its labels (as a map, 340), 180 for its path, its item in the tree and
// its change in the event log. Rounding by the allocator counts, too.
func TestCostOfObject(t *testing.T) {
	const (
		objects = 5000
		most    = 900
		text    = `{"apiVersion":"example.com/v1","kind":"Bakery","metadata":{"annotations":{"a":"%s"},"creationTimestamp":"2024-05-01T05:00:00Z",` +
			`"generation":1,"labels":{"app.kubernetes.io/name":"bakery","app.kubernetes.io/instance":"bakery-%d","team":"bread","zone":"z%d"},` +
			`"name":"bakery-%d","namespace":"default","uid":"7f3c2b1a-0000-4000-8000-%012d"},"spec":{"size":"small"}}`
	)
	c := New(Config{Logger: slog.New(slog.DiscardHandler)})
	sink{c}.Reset(1, nil)
	c.eventLog("example.com/bakeries/")
	before, bytes, annotation := heapBytes(), 0, strings.Repeat("x", 2700)
	for i := range objects {
		path := fmt.Sprintf("example.com/bakeries/default/bakery-%d", i)
		o, err := resource.ParseAt(path, fmt.Appendf(nil, text, annotation, i, i%7, i, i))
		if err != nil {
			t.Fatal(err)
		}
		rev := int64(i + 10)
		o = o.WithRevision(rev)
		bytes += len(o.Data)
		sink{c}.Apply([]resource.Change{{Path: path, Revision: rev, Object: o}})
	}
	if each := (heapBytes() - before - bytes) / objects; each > most {
		t.Errorf("an object of %d bytes costs %d more bytes", bytes/objects, each)
	} else {
		t.Logf("an object of %d bytes costs %d more bytes", bytes/objects, each)
	}
	runtime.KeepAlive(c)
}

// A custom resource of 300 bytes that is read at the start costs 800 bytes in all: 320 for its bytes, 256 for the
// object, 64 for its uid and a label, 32 for the label itself, 64 for its path, and 50 for its item in the tree.
func TestCostOfSmallObject(t *testing.T) {
	const (
		objects = 20000
		most    = 880
		text    = `{"apiVersion":"large.example.com/v1","kind":"Item","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,` +
			`"labels":{"shard":"s%d"},"name":"object-%06d","namespace":"items-0","uid":"00000000-0000-4000-8000-%012d"},"spec":{"text":"%s"}}`
	)
	c, filling := New(Config{Logger: slog.New(slog.DiscardHandler)}), strings.Repeat("v", 40)
	before, state := heapBytes(), make([]resource.Change, objects)
	for i := range state {
		path := fmt.Sprintf("large.example.com/items/items-0/object-%06d", i)
		o, err := resource.ParseAt(path, fmt.Appendf(nil, text, i%1000, i, i, filling))
		if err != nil || len(o.Data) < 290 || len(o.Data) > 300 {
			t.Fatal(len(o.Data), err)
		}
		state[i] = resource.Change{Path: path, Revision: int64(i + 100000), Object: o.WithRevision(int64(i + 100000))}
	}
	sink{c}.Reset(200000, state)
	clear(state)
	state = nil
	each := (heapBytes() - before) / objects
	if each > most {
		t.Errorf("an object costs %d bytes", each)
	}
	t.Logf("an object costs %d bytes", each)
	runtime.KeepAlive(c)
}
