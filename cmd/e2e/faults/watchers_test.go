//go:build watchers

package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

const (
	// watchCount is the number of watches, watchesOfConnection that of each connection.
	watchCount, watchesOfConnection = 20_000, 250
	// watchUpdates is the number of changes that each of them is sent.
	watchUpdates = 20
	// watchMemory is what a gateway counts a watch as in its limit (docs/operations.md).
	watchMemory = 64 << 10
	// ticksPerSecond is the unit of times in /proc/PID/stat.
	ticksPerSecond = 100
)

// usage is the memory of a process in bytes, and the time that processors worked for it.
type usage struct {
	memory int
	worked time.Duration
}

// usage returns that of a process. The memory of a gateway is what its heap and stacks use after a collection
// of garbage, that of others their anonymous memory.
func (n *node) usage(t *testing.T) (u usage) {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", n.cmd.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	number := func(text string) int {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(f)
	}
	if n.command == "gateway" {
		client := e2e.HTTPClient(t, n.cluster.up.Config(t))
		for range 2 { // the second one frees what finalizers and pools held
			e2e.Get(t, client, n.url()+"/debug/pprof/heap?gc=1", "")
		}
		_, metrics := e2e.Get(t, client, n.url()+"/metrics", "")
		for _, m := range regexp.MustCompile(`(?m)^go_memstats_(?:heap|stack)_inuse_bytes (.+)$`).FindAllStringSubmatch(metrics, -1) {
			u.memory += number(m[1])
		}
	} else {
		u.memory = number(regexp.MustCompile(`(?m)^Anonymous: +(\d+)`).FindStringSubmatch(read("smaps_rollup"))[1]) << 10
	}
	stat := read("stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	u.worked = time.Duration(number(fields[11])+number(fields[12])) * time.Second / ticksPerSecond
	return u
}

// 20,000 watches of one kind over three gateways are sent each change once and in order, and cost each
// gateway no more memory than its limit of long-running requests counts for them.
func TestWatchers(t *testing.T) {
	gateways := []string{"gateway", "gateway-2", "gateway-3"}
	a := newCluster(t, append([]string{"core", "crd"}, gateways[1:]...)...)
	a.extra["gateway"] = []string{"--profiling"}
	a.start(t, append([]string{"core", "crd"}, gateways...)...)
	const path = "/api/v1/namespaces/default/configmaps"
	for _, name := range gateways {
		e2e.Eventually(t, name+" serves", func() error {
			resp, body, err := e2e.Ask(t.Context(), e2e.HTTPClient(t, a.up.Config(t)), http.MethodGet, a.nodes[name].url()+path, "")
			if err == nil && resp.StatusCode != http.StatusOK {
				err = errors.New(body)
			}
			return err
		})
	}
	a.up.Post(t, path, `{"metadata":{"name":"watched"},"data":{"n":"0"}}`)
	all := append([]string{"core"}, gateways...)
	measure := func() map[string]usage {
		out := map[string]usage{}
		for _, name := range all {
			out[name] = a.nodes[name].usage(t)
		}
		return out
	}

	idle := measure()
	w := &manyWatches{ctx: t.Context()}
	began := time.Now()
	for i := range watchCount / watchesOfConnection {
		w.open(t, a.up.Config(t), a.nodes[gateways[i%len(gateways)]].url()+path+"?watch=true&fieldSelector=metadata.name%3Dwatched")
	}
	t.Logf("%d watches are open after %v", watchCount, time.Since(began).Round(time.Millisecond))
	open := measure()
	began = time.Now()
	for n := 1; n <= watchUpdates; n++ {
		body := fmt.Sprintf(`{"data":{"n":"%d"}}`, n)
		if code, answer := a.up.Do(t, http.MethodPatch, path+"/watched", body, "Content-Type: application/merge-patch+json"); code != http.StatusOK {
			t.Fatalf("update %d: %d %s", n, code, answer)
		}
	}
	e2e.Eventually(t, "every watch has every change", func() error {
		if err := w.failed.Load(); err != nil {
			t.Fatal(*err)
		}
		if got := w.events.Load(); got != watchCount*watchUpdates {
			return fmt.Errorf("%d events", got)
		}
		return nil
	})
	t.Logf("%d changes are delivered %v after the first was sent", watchUpdates, time.Since(began).Round(time.Millisecond))
	compareWatchers(t, idle, open, measure())
}

// compareWatchers says what a watch and an event cost each process, from its usage without watches, with them, and
// after the events.
func compareWatchers(t *testing.T, idle, open, end map[string]usage) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(idle)) {
		n := watchCount
		if name != "core" {
			n /= len(idle) - 1
		}
		each := (open[name].memory - idle[name].memory) / n
		t.Logf("%s: %d KB a watch, %v of a processor an event", name, each>>10, (end[name].worked-open[name].worked)/time.Duration(n*watchUpdates))
		if each > watchMemory {
			t.Errorf("a watch costs %s %d bytes, more than the %d that it counts", name, each, watchMemory)
		}
	}
}

// manyWatches counts the events of watches.
type manyWatches struct {
	ctx    context.Context
	events atomic.Int64
	failed atomic.Pointer[error]
}

// open opens the watches of one connection and reads their first events.
func (w *manyWatches) open(t *testing.T, cfg *rest.Config, url string) {
	t.Helper()
	settings, err := rest.TLSConfigFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}}
	var opened sync.WaitGroup
	for range watchesOfConnection {
		opened.Add(1)
		go func() {
			if err := w.read(client, url, opened.Done); err != nil && w.ctx.Err() == nil {
				w.failed.Store(&err)
			}
		}()
	}
	opened.Wait()
	if err := w.failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

// read counts the events of a watch, which must have the numbers from 1 on; opened is called once,
// after the first event, which is the state.
func (w *manyWatches) read(client *http.Client, url string, opened func()) error {
	opened = sync.OnceFunc(opened)
	defer opened()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for n := 0; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("a watch ended after %d events: %w", n, err)
		}
		if !strings.Contains(line, fmt.Sprintf(`"n":"%d"`, n)) {
			return fmt.Errorf("a watch was sent %.300s instead of change %d", line, n)
		}
		if n > 0 {
			w.events.Add(1)
		}
		opened()
	}
}
