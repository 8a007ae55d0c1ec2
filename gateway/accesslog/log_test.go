package accesslog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
	"portico/resource/serve/filter"
)

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// run runs the log until the returned function is called, which returns when it
// has ended.
func run(t *testing.T, l *Log) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// lines returns how many lines came to an end of the kind.
func lines(t *testing.T, registry *prometheus.Registry, result string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == result {
			return m.GetCounter().GetValue()
		}
	}
	return 0
}

func TestLine(t *testing.T) {
	var out bytes.Buffer
	l := open(t, Config{Path: Standard, Output: &out})
	stop := run(t, l)
	request := httptest.NewRequest("GET", "/api/v1/pods?token=abc", nil)
	action := resource.ParseAction(request)
	action.User = &resource.User{Name: "jane"}
	l.Add(&filter.RequestEnd{
		Request: request, Action: action, Start: time.Unix(1700000000, 0), AuditID: "id",
		Code: 200, Bytes: 12, Took: 1500 * time.Microsecond, FirstByte: time.Millisecond,
		Upstream: filter.Upstream{APIService: "v1.", Backend: "core", Endpoint: "unix:///core.sock", Attempts: 2, FirstByte: 900 * time.Microsecond, Took: time.Millisecond},
	})
	stop()
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	for key, want := range map[string]any{
		"msg": "request", "auditID": "id", "user": "jane", "uri": "/api/v1/pods?token=REDACTED", "verb": "list", "resource": "pods",
		"code": 200.0, "bytes": 12.0, "took": 0.0015, "firstByte": 0.001, "backend": "core", "endpoint": "unix:///core.sock",
		"attempts": 2.0, "upstreamFirstByte": 0.0009, "upstreamTook": 0.001,
	} {
		if got[key] != want {
			t.Errorf("%s: got %v, want %v", key, got[key], want)
		}
	}
	if _, ok := got["impersonator"]; ok {
		t.Error("what is empty is in the line")
	}
}

// The queue does not hold a megabyte of header for each record, and a client
// cannot make lines as long as it likes.
func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var out bytes.Buffer
	l := open(t, Config{Path: Standard, Output: &out})
	stop := run(t, l)
	l.add(record{
		RequestEnd: filter.RequestEnd{AuditID: long, TraceID: "t", Upstream: filter.Upstream{Err: long}},
		user:       long, impersonator: long, method: long, uri: "/" + long, userAgent: long,
		verb: long, group: long, version: long, res: long, subresource: long, namespace: long, name: long,
	})
	stop()
	if n := out.Len(); n > 6<<10 || n < maxURI {
		t.Errorf("the line has %d bytes", n)
	}
}

// A reader of a pipe that hangs costs lines, not requests: Add returns, what
// does not fit is counted, and what fits is written once the pipe is read.
func TestPipeIsNotRead(t *testing.T) {
	registry := prometheus.NewRegistry()
	read, write := io.Pipe()
	l := open(t, Config{Path: Standard, Output: write, Registry: registry})
	stop := run(t, l)
	const adders, each = 8, queueLength / 4
	var adding sync.WaitGroup
	for range adders {
		adding.Go(func() {
			for range each {
				l.add(record{RequestEnd: filter.RequestEnd{Code: 200}})
			}
		})
	}
	adding.Wait()
	if dropped := lines(t, registry, "dropped"); dropped < adders*each-queueLength-batchBytes/50 || dropped == 0 {
		t.Errorf("dropped %v", dropped)
	}
	count := make(chan int)
	go func() {
		n := 0
		for scan := bufio.NewScanner(read); scan.Scan(); n++ {
		}
		count <- n
	}()
	stop()
	_ = write.Close()
	n := float64(<-count)
	if written, dropped := lines(t, registry, "written"), lines(t, registry, "dropped"); written != n || written+dropped != adders*each {
		t.Errorf("read %v lines, written %v, dropped %v", n, written, dropped)
	}
}

// The end of the process does not wait for a reader that never reads.
func TestEndWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		l := open(t, Config{Path: Standard, Output: write})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = l.Run(ctx) }()
		l.add(record{})
		synctest.Wait()
		begun := time.Now()
		cancel()
		<-done
		if took := time.Since(begun); took != flushTimeout {
			t.Errorf("took %v", took)
		}
		_ = read.Close()
	})
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	l := open(t, Config{Path: path})
	stop := run(t, l)
	l.add(record{RequestEnd: filter.RequestEnd{AuditID: "first"}})
	waitFor(t, path, "first")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, path, "") // made anew
	l.add(record{RequestEnd: filter.RequestEnd{AuditID: "second"}})
	waitFor(t, path, "second")
	// Truncated in place, as logrotate's copytruncate does.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	l.add(record{RequestEnd: filter.RequestEnd{AuditID: "third"}})
	stop()
	now, before := readAll(t, path), readAll(t, path+".1")
	if strings.Contains(now, "\x00") || !strings.Contains(now, "third") || strings.Contains(now, "second") {
		t.Errorf("got %q", now)
	}
	if !strings.Contains(before, "first") || strings.Contains(before, "second") {
		t.Errorf("the renamed file has %q", before)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// waitFor waits until the file is there and has the text.
func waitFor(t *testing.T, path, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has no %q: %q, %v", path, text, b, err)
		}
	}
}

// A named pipe without reader is a configuration error and does not block the start.
func TestPipeWithoutReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: path}); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("got %v", err)
	}
}

// full takes some bytes of the first write and then fails until it is emptied.
type full struct {
	mu   sync.Mutex
	room int
	got  bytes.Buffer
}

func (f *full) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(p) <= f.room {
		f.room -= len(p)
		return f.got.Write(p)
	}
	n, _ := f.got.Write(p[:f.room])
	f.room = 0
	return n, syscall.ENOSPC
}

func TestFullDisk(t *testing.T) {
	disk, registry := &full{room: 10}, prometheus.NewRegistry()
	l := open(t, Config{Path: Standard, Output: disk, Registry: registry})
	stop := run(t, l)
	l.add(record{})
	for deadline := time.Now().Add(20 * time.Second); lines(t, registry, "failed") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the failure was not counted")
		}
	}
	disk.mu.Lock()
	disk.room = 1 << 20
	disk.mu.Unlock()
	l.add(record{RequestEnd: filter.RequestEnd{AuditID: "after"}})
	stop()
	// What is left of the line that was cut does not spoil the next one.
	if got := strings.Split(disk.got.String(), "\n"); len(got) != 3 || !json.Valid([]byte(got[1])) {
		t.Errorf("got %q", got)
	}
	if lines(t, registry, "failed") != 1 || lines(t, registry, "written") != 1 {
		t.Errorf("failed %v, written %v", lines(t, registry, "failed"), lines(t, registry, "written"))
	}
}

func BenchmarkAdd(b *testing.B) {
	l, err := Open(Config{Path: filepath.Join(b.TempDir(), "access.log")})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = l.Run(ctx) }()
	r := record{
		RequestEnd: filter.RequestEnd{
			Start: time.Now(), AuditID: "0c0b2ee8-2b0e-4b3c-9d0e-000000000000", Code: 200, Bytes: 500,
			Upstream: filter.Upstream{APIService: "v1.", Backend: "core", Attempts: 1},
		},
		user: "jane", method: "GET", uri: "/api/v1/namespaces/default/configmaps/a", protocol: "HTTP/2.0", verb: "get", version: "v1",
		res: "configmaps", namespace: "default", name: "a", userAgent: "kubectl/v1.37.2 (linux/amd64)", remote: "127.0.0.1:50000",
	}
	b.ReportAllocs()
	for b.Loop() {
		l.add(r)
	}
}

func BenchmarkLine(b *testing.B) {
	l, err := Open(Config{Path: Standard, Output: io.Discard})
	if err != nil {
		b.Fatal(err)
	}
	r := record{
		RequestEnd: filter.RequestEnd{
			Start: time.Now(), AuditID: "0c0b2ee8-2b0e-4b3c-9d0e-000000000000", Code: 200, Bytes: 500,
			Upstream: filter.Upstream{APIService: "v1.", Backend: "core", Attempts: 1},
		},
		user: "jane", method: "GET", uri: "/api/v1/namespaces/default/configmaps/a", protocol: "HTTP/2.0", verb: "get", version: "v1",
		res: "configmaps", namespace: "default", name: "a", userAgent: "kubectl/v1.37.2 (linux/amd64)", remote: "127.0.0.1:50000",
	}
	b.ReportAllocs()
	for b.Loop() {
		l.writeAll(r)
	}
}
