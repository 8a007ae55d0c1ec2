package sdnotify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// systemd is the receiving end: a socket, and the lines that it got.
type systemd struct {
	conn  *net.UnixConn
	lines []string
}

func listen(t *testing.T, name string) *systemd {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &systemd{conn: conn}
}

// await reads until a line comes, and returns those before it.
func (s *systemd) await(t *testing.T, want string) (before []string) {
	t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(await.Patience())); err != nil {
		t.Fatal(err)
	}
	for {
		for len(s.lines) > 0 {
			line := s.lines[0]
			s.lines = s.lines[1:]
			if line == want {
				return before
			}
			before = append(before, line)
		}
		buffer := make([]byte, 4096)
		n, err := s.conn.Read(buffer)
		if err != nil {
			t.Fatalf("wait for %s: %v, got %q", want, err, before)
		}
		s.lines = strings.Split(string(buffer[:n]), "\n")
	}
}

// A process is ready after its check, gives signs of life while it is alive, also when it stops,
// and says what it lacks. Sockets have paths, or names in the abstract namespace.
func TestProtocol(t *testing.T) {
	for name, socket := range map[string]string{
		"path": filepath.Join(t.TempDir(), "notify"), "abstract": fmt.Sprintf("@portico-%s-%d", t.Name(), time.Now().UnixNano()),
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, socket)
			t.Setenv("NOTIFY_SOCKET", socket)
			t.Setenv("WATCHDOG_USEC", "20000")
			var ready, dead atomic.Bool
			ctx, cancel := context.WithCancel(t.Context())
			stop := Start(ctx, Checks{
				Ready: func(context.Context) error {
					if !ready.Load() {
						return errors.New("etcd:\nno leader")
					}
					return nil
				},
				Live: func(context.Context) error {
					if dead.Load() {
						return errors.New("core is away")
					}
					return nil
				},
			})
			defer stop()
			s.await(t, "STATUS=not ready: etcd: no leader")
			for range 3 {
				for _, line := range s.await(t, "WATCHDOG=1") {
					t.Errorf("got %s", line)
				}
			}
			ready.Store(true)
			s.await(t, "READY=1")
			s.await(t, "STATUS=serving")
			dead.Store(true)
			s.await(t, "STATUS=not alive: core is away")
			dead.Store(false)
			for _, line := range s.await(t, "STATUS=serving") {
				t.Errorf("while the process was not alive: %s", line)
			}
			s.await(t, "WATCHDOG=1")
			cancel()
			s.await(t, "STOPPING=1")
			s.await(t, "STATUS=stopping")
			s.await(t, "WATCHDOG=1")
		})
	}
}

// The watchdog of another process, and no socket, mean silence.
func TestWithoutWatchdog(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	s := listen(t, socket)
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv("WATCHDOG_PID", "1")
	ok := func(context.Context) error { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	stop := Start(ctx, Checks{Ready: ok, Live: ok})
	defer stop()
	s.await(t, "READY=1")
	cancel()
	for _, line := range s.await(t, "STOPPING=1") {
		if line != "STATUS=serving" {
			t.Errorf("got %s", line)
		}
	}
	Start(t.Context(), Checks{})() // the variables are gone
}

// However often a process is checked until it is ready, it gives signs of life at half of the time that
// systemd asks for, and the next one in time after it is ready.
func TestWatchdogInterval(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	s := listen(t, socket)
	ready := errors.New("etcd")
	n := &notifier{socket: socket, interval: time.Hour, watched: true, checks: Checks{
		Ready: func(context.Context) error { return ready }, Live: func(context.Context) error { return nil },
	}}
	for range 50 {
		if pause := n.check(t.Context(), false); pause != startInterval {
			t.Fatalf("the next check is after %v", pause)
		}
	}
	n.alive = n.alive.Add(-time.Hour)
	n.check(t.Context(), false)
	n.alive, ready = n.alive.Add(-50*time.Minute), nil
	if pause := n.check(t.Context(), false); pause > 10*time.Minute {
		t.Errorf("once it is ready, the next check is after %v", pause)
	}
	n.send("END=1")
	if got := strings.Count(strings.Join(s.await(t, "END=1"), " "), "WATCHDOG=1"); got != 2 {
		t.Errorf("%d signs of life in two hours", got)
	}
}
