package definitions

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/resource/etcd"
)

// processes are those that know definitions.
var processes = []string{"gateway", "core", "crd"}

// footprint is what a process holds.
type footprint struct {
	// heap is the memory of live objects after a collection of garbage, in bytes.
	heap, goroutines int
	// series are those of metrics that name a group of churnGroup.
	series []string
}

// keysWith returns the keys of etcd in which, or in the value of which, a text is.
func keysWith(t *testing.T, up *e2e.Installation, text string) (keys []string) {
	t.Helper()
	client, err := etcd.Open(etcd.Config{Endpoints: []string{up.Etcd}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Walk(t.Context(), func(key string, value []byte) {
		if strings.Contains(key, text) || bytes.Contains(value, []byte(text)) {
			keys = append(keys, key)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return keys
}

// footprintsOf asks the gateway over the one connection of c.
func footprintsOf(t *testing.T, up *e2e.Installation, c *client) map[string]footprint {
	t.Helper()
	out := map[string]footprint{}
	for _, process := range processes {
		read := func(path string) string {
			if process != "gateway" {
				return up.Read(t, process, path)
			}
			code, answer := c.ask(t.Context(), "GET", path, "")
			if code != http.StatusOK {
				t.Fatalf("%s: %d %.500s", path, code, answer)
			}
			return answer
		}
		for range 2 { // the second collection frees what finalizers and pools held
			read("/debug/pprof/heap?gc=1")
		}
		var f footprint
		for line := range strings.Lines(read("/metrics")) {
			for name, to := range map[string]*int{"go_memstats_heap_alloc_bytes ": &f.heap, "go_goroutines ": &f.goroutines} {
				if text, ok := strings.CutPrefix(line, name); ok {
					value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
					if err != nil {
						t.Fatal(err)
					}
					*to = int(value)
				}
			}
			if strings.Contains(line, churnGroup) {
				f.series = append(f.series, line)
			}
		}
		out[process] = f
	}
	return out
}

const (
	// moreHeap and moreGoroutines are what a process may have more than before: bounded caches, connections and workers.
	moreHeap, moreGoroutines = 8 << 20, 20
)

// compare returns an error if a process holds more than before.
func compare(before, now map[string]footprint) (err error) {
	for _, process := range processes {
		b, n := before[process], now[process]
		if n.heap > b.heap+moreHeap {
			err = errors.Join(err, fmt.Errorf("%s: %d KB are in use, and were %d", process, n.heap>>10, b.heap>>10))
		}
		if n.goroutines > b.goroutines+moreGoroutines {
			err = errors.Join(err, fmt.Errorf("%s: %d goroutines, and were %d", process, n.goroutines, b.goroutines))
		}
		if len(n.series) > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %d series are left: %.2000s", process, len(n.series), n.series))
		}
	}
	return err
}
