package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// The test binary is its own child: roleEnv says which.
const roleEnv = "SUPERVISE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		os.Exit(m.Run())
	case "serve":
		serve()
	case "fail":
		fmt.Fprintln(os.Stderr, "starting")
		fmt.Fprintln(os.Stderr, "portico: it fails")
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(os.Getpid())
		select {}
	case "supervisor":
		superviseSelf(false)
	case "lifeline-supervisor":
		superviseSelf(true)
	default:
		panic("unknown role " + role)
	}
}

// serve answers /readyz on the unix socket named by its argument until SIGTERM.
func serve() {
	if err := WatchLifeline(func() { os.Exit(1) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	socket := os.Args[len(os.Args)-1]
	os.Remove(socket)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, os.Getpid())
	}))
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "stopped in order")
}

// superviseSelf is a supervisor for tests that kill it. With lifelineOnly it sets no
// parent-death signal, as on systems without one.
func superviseSelf(lifelineOnly bool) {
	dir := os.Args[len(os.Args)-1]
	if lifelineOnly {
		line, err := newLifeline()
		if err != nil {
			panic(err)
		}
		cmd := exec.Command(os.Args[0], filepath.Join(dir, "s"))
		cmd.Env = append(os.Environ(), roleEnv+"=serve", line.env(0))
		cmd.ExtraFiles = []*os.File{line.read}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		line.started()
		_ = cmd.Wait()
		return
	}
	log, err := OpenLog(LogConfig{File: filepath.Join(dir, "log")})
	if err != nil {
		panic(err)
	}
	p := New(child(log, "serve", filepath.Join(dir, "s")))
	if err := p.Run(context.Background()); err != nil {
		panic(err)
	}
}

func child(log *Log, role, socket string) Config {
	return Config{
		Name: "child", Path: os.Args[0], Args: []string{socket}, Env: []string{roleEnv + "=" + role},
		Log: log, Ready: HTTPReady("http://child/readyz", socket, nil, nil), StopTimeout: time.Minute, Report: func(string) {},
	}
}

// reports collects the reports of a Process.
type reports struct {
	mu    sync.Mutex
	lines []string
}

func (r *reports) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *reports) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func newChild(t *testing.T, role string) (Config, *reports, *Log) {
	t.Helper()
	dir := shortDir(t)
	log, err := OpenLog(LogConfig{File: filepath.Join(dir, "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	cfg := child(log, role, filepath.Join(dir, "s"))
	said := &reports{}
	cfg.Report = said.add
	return cfg, said, log
}

func run(t *testing.T, p *Process) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	return stop
}

func waitReady(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Ready():
	case <-time.After(await.Patience()):
		t.Fatalf("not ready: %v", p.Waiting())
	}
}

func TestStopsInOrder(t *testing.T) {
	cfg, _, log := newChild(t, "serve")
	p := New(cfg)
	stop := run(t, p)
	waitReady(t, p)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := log.Last(); got != "stopped in order" {
		t.Errorf("the last line of the child: %q", got)
	}
	if p.PID() != 0 {
		t.Error("still has a pid")
	}
}

func TestStartsAgainAfterKill(t *testing.T) {
	cfg, said, _ := newChild(t, "serve")
	p := New(cfg)
	run(t, p)
	waitReady(t, p)
	first := p.PID()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "ready again", func() bool { return strings.Contains(said.String(), "child is ready again") })
	if pid := p.PID(); pid == first || pid == 0 {
		t.Errorf("pid %d after %d", pid, first)
	}
	if want := "child ended (signal: killed); starting it again in 100ms"; !strings.Contains(said.String(), want) {
		t.Errorf("reports: %s\nwant %s", said, want)
	}
}

// The attempts are in the log of the child, and one line says how they end.
func TestGivesUpOnAChildThatNeverStarts(t *testing.T) {
	cfg, said, _ := newChild(t, "fail")
	err := New(cfg).Run(t.Context())
	if err == nil || err.Error() != "start child: it fails" {
		t.Errorf("got %v", err)
	}
	log, err := os.ReadFile(filepath.Join(filepath.Dir(cfg.Args[0]), "log"))
	if n := strings.Count(string(log), "it fails"); err != nil || n != startAttempts || said.String() != "" {
		t.Errorf("started %d times (%v), want %d; reports: %s", n, err, startAttempts, said)
	}
}

func TestMissingProgram(t *testing.T) {
	cfg, _, _ := newChild(t, "serve")
	cfg.Path = "/no/such/program"
	if err := New(cfg).Run(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestKillsAChildThatDoesNotStop(t *testing.T) {
	cfg, said, log := newChild(t, "stubborn")
	cfg.StopTimeout = 50 * time.Millisecond
	cfg.Ready = func(context.Context) error {
		if log.Last() == "" {
			return errors.New("no output yet")
		}
		return nil
	}
	p := New(cfg)
	stop := run(t, p)
	waitReady(t, p)
	pid := p.PID()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("the child runs")
	}
	if !strings.Contains(said.String(), "and was killed") {
		t.Errorf("reports: %s", said)
	}
}

// A child ends when its supervisor is killed, by the parent-death signal, also if the child is
// stopped (SIGSTOP), and by the lifeline.
func TestChildDiesWithSupervisor(t *testing.T) {
	for _, tc := range []struct {
		role   string
		frozen bool
	}{{"supervisor", false}, {"supervisor", true}, {"lifeline-supervisor", false}} {
		t.Run(tc.role+" frozen="+strconv.FormatBool(tc.frozen), func(t *testing.T) {
			dir := shortDir(t)
			cmd := exec.Command(os.Args[0], dir)
			cmd.Env = append(os.Environ(), roleEnv+"="+tc.role)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			var pid int
			await.Until(t, "child serves", func() bool { pid = askPID(filepath.Join(dir, "s")); return pid != 0 })
			if tc.frozen {
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			await.Until(t, "child gone", func() bool { return !alive(pid) })
		})
	}
}

func TestNoLifeline(t *testing.T) {
	t.Setenv(LifelineEnv, "")
	if err := WatchLifeline(func() { t.Error("called") }); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"x", "-1", "1", "98765"} {
		t.Setenv(LifelineEnv, bad)
		if err := WatchLifeline(func() {}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// askPID returns the process id from the response of the child.
func askPID(socket string) int {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	resp, err := client.Get("http://child/")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var pid int
	fmt.Fscan(resp.Body, &pid)
	return pid
}

// alive reports whether the process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
