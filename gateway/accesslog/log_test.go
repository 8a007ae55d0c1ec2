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
	dto "github.com/prometheus/client_model/go"

	"portico/internal/testing/await"
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

// value returns the value of a counter.
func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// A line has what is known of a request, and no credentials.
func TestLine(t *testing.T) {
	t.Parallel()
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

// Strings that a client chooses are cut, in the queue and in lines.
func TestBounds(t *testing.T) {
	t.Parallel()
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

// While the reader of a pipe hangs, Add returns: lines that do not fit into the queue are
// counted as dropped, and the others are written once the pipe is read.
func TestPipeIsNotRead(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	l := open(t, Config{Path: Standard, Output: write})
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
	if dropped := value(t, l.dropped); dropped < adders*each-queueLength-batchBytes/50 || dropped == 0 {
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
	if written, dropped := value(t, l.written), value(t, l.dropped); written != n || written+dropped != adders*each {
		t.Errorf("read %v lines, written %v, dropped %v", n, written, dropped)
	}
}

// The end of the process does not wait for a reader that never reads.
func TestEndWithoutReader(t *testing.T) {
	t.Parallel()
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

// After the file is renamed a new one is made, and a file that is truncated in place is
// appended to, as logrotate does both.
func TestRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.log")
	l := open(t, Config{Path: path})
	stop := run(t, l)
	l.add(record{RequestEnd: filter.RequestEnd{AuditID: "first"}})
	await.Until(t, "the first line is written", func() bool { return strings.Contains(readFile(path), "first") })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the file is made again", func() bool { _, err := os.Stat(path); return err == nil })
	l.add(record{RequestEnd: filter.RequestEnd{AuditID: "second"}})
	await.Until(t, "the second line is written", func() bool { return strings.Contains(readFile(path), "second") })
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	l.add(record{RequestEnd: filter.RequestEnd{AuditID: "third"}})
	stop()
	now, before := readFile(path), readFile(path+".1")
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

// readFile returns the content of a file; "" if there is none.
func readFile(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// A named pipe without reader is a configuration error and does not block the start.
func TestPipeWithoutReader(t *testing.T) {
	t.Parallel()
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

// Lines that cannot be written are counted, and what was written of one spoils no later line.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := &full{room: 10}
	l := open(t, Config{Path: Standard, Output: disk})
	stop := run(t, l)
	l.add(record{})
	await.Until(t, "the failure is counted", func() bool { return value(t, l.failed) != 0 })
	disk.mu.Lock()
	disk.room = 1 << 20
	disk.mu.Unlock()
	l.add(record{RequestEnd: filter.RequestEnd{AuditID: "after"}})
	stop()
	if got := strings.Split(disk.got.String(), "\n"); len(got) != 3 || !json.Valid([]byte(got[1])) {
		t.Errorf("got %q", got)
	}
	if value(t, l.failed) != 1 || value(t, l.written) != 1 {
		t.Errorf("failed %v, written %v", value(t, l.failed), value(t, l.written))
	}
}
