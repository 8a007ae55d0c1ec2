package handlers

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"portico/internal/testing/memstore"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
	"portico/resource/watchcache"
)

// newCachedBench returns a bench with a watch cache, as all processes have it.
func newCachedBench(t testing.TB, configure ...func(*watchcache.Config)) (*bench, *memstore.Storage) {
	t.Helper()
	storage := memstore.New()
	cfg := watchcache.Config{Feed: storage.Feed(), Store: storage.Store}
	for _, c := range configure {
		c(&cfg)
	}
	cache := watchcache.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = cache.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if err := cache.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	maps, secret := resttest.ConfigMaps(), resttest.Secrets()
	resources := []*rest.Resource{{Kind: maps, Store: cache.Store(&maps.Info)}, {Kind: secret, Store: cache.Store(&secret.Info)}}
	b := newBench(t, func(c *Config, _ *bench) { c.Resources = resources })
	b.configMaps, b.secrets = resources[0], resources[1]
	return b, storage
}

func secretOf(name, kind string, labels ...string) *corev1.Secret {
	s := resttest.Secret(name)
	s.Type = corev1.SecretType(kind)
	s.Labels = map[string]string{}
	for _, l := range labels {
		s.Labels[l] = "1"
	}
	return s
}

// The options of a watch decide its first events. A change has the same event in the history
// as when it happens.
func TestFirstEventsOfAWatch(t *testing.T) {
	b, storage := newCachedBench(t)
	b.put(b.secrets, secretOf("a", "x", "l"))
	from := storage.Revision()
	b.put(b.secrets, secretOf("b", "x"))
	b.put(b.secrets, secretOf("a", "y"))           // leaves both selections
	b.put(b.secrets, secretOf("b", "x", "l"))      // has the label now
	b.put(b.secrets, secretOf("b", "x", "l", "m")) // within
	b.put(b.secrets, secretOf("a", "x", "l"))      // comes back
	b.remove(b.secrets, "b")
	const end = "ADDED Secret z"
	since := "&resourceVersion=" + strconv.FormatInt(from, 10)
	history := []string{"DELETED Secret a", "ADDED Secret b", "MODIFIED Secret b", "ADDED Secret a", "DELETED Secret b"}
	watches := map[string][]string{
		"":                   {"ADDED Secret a"},
		"&resourceVersion=0": {"ADDED Secret a"},
		"&sendInitialEvents=false&resourceVersionMatch=NotOlderThan":                  {},
		"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" + since:           {"ADDED Secret a"},
		"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0": {"ADDED Secret a"},
		"&allowWatchBookmarks=true": {"ADDED Secret a", "BOOKMARK Secret "},
		"&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" + since: {"ADDED Secret a", "BOOKMARK Secret "},
		"&labelSelector=l" + since:                 history,
		"&fieldSelector=type%3Dx" + since:          {"ADDED Secret b", "DELETED Secret a", "MODIFIED Secret b", "MODIFIED Secret b", "ADDED Secret a", "DELETED Secret b"},
		"&labelSelector=!l" + since:                {"ADDED Secret b", "ADDED Secret a", "DELETED Secret b", "DELETED Secret a"},
		"&fieldSelector=metadata.name%3Db" + since: {"ADDED Secret b", "MODIFIED Secret b", "MODIFIED Secret b", "DELETED Secret b"},
	}
	open := map[string]*watching{}
	for query := range watches {
		open[query] = b.watch(inDefault+"secrets?watch=1"+query, "")
	}
	b.put(b.secrets, secretOf("z", "x", "l"))
	for query, want := range watches {
		w := open[query]
		w.expect(want...)
		switch {
		case strings.Contains(query, "metadata.name"), strings.Contains(query, "!l"):
		default:
			w.expect(end)
		}
	}
	// An object that left the selection has its last state at the revision of the change.
	e := b.watch(inDefault+"secrets?watch=1&labelSelector=l"+since, "").next()
	if e.Object.ResourceVersion != strconv.FormatInt(from+2, 10) || e.Object.Labels["l"] != "1" {
		t.Errorf("left as %+v", e.Object)
	}
}

// The initial events of a watch that replaces a list are compressed for clients that accept
// gzip, event by event, and their time is measured.
func TestWatchListIsCompressed(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := newBench(t, func(c *Config, _ *bench) { c.Metrics = registry })
	b.put(b.configMaps, resttest.ConfigMap("a"))
	const list = configMaps + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for path, encoding := range map[string]string{list: "deflate", configMaps + "?watch=1&allowWatchBookmarks=true": "gzip"} {
		if h := b.watch(path, "", "Accept-Encoding", encoding).resp.Header; h.Get("Content-Encoding") != "" || h.Get("Vary") != "" {
			t.Errorf("%s with %s: %v", path, encoding, h)
		}
	}
	resp := b.watch(list, "", "Accept-Encoding", "gzip").resp
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("%v", resp.Header)
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	expect := func(want ...string) {
		t.Helper()
		for _, s := range want {
			// An event must not wait for the next one.
			if !lines.Scan() || !strings.Contains(lines.Text(), s) {
				t.Fatalf("got %s %v, want %s", lines.Text(), lines.Err(), s)
			}
		}
	}
	expect(`{"type":"ADDED"`, "initial-events-end")
	for i := range 3 {
		b.put(b.configMaps, resttest.ConfigMap(fmt.Sprint("b", i)))
		expect(fmt.Sprintf(`"name":"b%d"`, i))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "apiserver_watch_list_duration_seconds" && f.GetMetric()[0].GetHistogram().GetSampleCount() >= 1 {
			return
		}
	}
	t.Errorf("no time of initial events in %v", families)
}

// stuckWatch opens a watch over a connection with small buffers and does not read it.
func stuckWatch(t *testing.T, b *bench) net.Conn {
	t.Helper()
	server := httptest.NewUnstartedServer(b.Config.Handler)
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if err := conn.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil {
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %ssecrets?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n", inDefault)
	return conn
}

// A client that does not read delays no other client and uses no memory. When it reads again
// it gets all events, or an Expired error if they are no longer kept.
func TestClientThatDoesNotRead(t *testing.T) {
	const events, size = 100, 100 << 10
	for name, history := range map[string]int64{"what it missed is kept": 64 << 20, "what it missed is gone": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			b, _ := newCachedBench(t, func(c *watchcache.Config) {
				c.History = watchcache.History{Age: time.Hour, MinEvents: 1, MaxBytes: history}
			})
			stuck := stuckWatch(t, b)
			others := []*watching{b.watch(inDefault+"secrets?watch=1", ""), b.watch(inDefault+"secrets?watch=1", "")}
			before := heap()
			obj := resttest.Secret("a")
			for i := range events {
				obj.Data["big"] = bytes.Repeat([]byte{byte(i)}, size*3/4)
				b.put(b.secrets, obj)
				for _, w := range others { // each has it before the next one happens
					if e := w.next(); e.Object.Name != "a" {
						t.Fatalf("%+v", e)
					}
				}
			}
			if grown := heap() - before; grown > history+16<<20 {
				t.Errorf("%d MiB of memory", grown>>20)
			}
			b.put(b.secrets, resttest.Secret("end"))
			resp, err := http.ReadResponse(bufio.NewReader(stuck), nil)
			if err != nil {
				t.Fatal(err)
			}
			lines, line, seen := bufio.NewReader(resp.Body), "", 0
			for !strings.Contains(line, `"name":"end"`) && !strings.Contains(line, `"type":"ERROR"`) {
				if line, err = lines.ReadString('\n'); err != nil {
					t.Fatalf("after %d events: %v", seen, err)
				}
				seen++
			}
			if history > events*size {
				if seen != events+1 || strings.Contains(line, "ERROR") {
					t.Errorf("%d events of %d, at last %.200s", seen, events+1, line)
				}
				return
			}
			rest, err := io.ReadAll(lines)
			if len(rest) > 0 || err != nil || !strings.Contains(line, `"reason":"Expired","code":410`) {
				t.Errorf("%.200s, then %q %v", line, rest, err)
			}
		})
	}
}

func heap() int64 {
	var m goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
