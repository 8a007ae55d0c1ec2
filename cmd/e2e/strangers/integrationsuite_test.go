//go:build strangers

package strangers

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Bounds of a suite.
const (
	suiteTime   = 90 * time.Minute
	suiteMemory = 6 << 30 // bytes of all its processes
)

// exitPanic is the exit code of a Go process that panics.
const exitPanic = 2

// suite is a test binary and the folder of its package. etcd is the URL of an etcd that tests use and empty; the framework
// starts one if none answers.
type suite struct{ dir, program, etcd string }

// run runs the suite, for suiteTime at most. A panic ends the process: the tests that it was running count as failed, and
// another process runs the tests that have no outcome yet.
func (s *suite) run(t *testing.T, with string, env []string) *results {
	t.Helper()
	began := time.Now()
	all := &results{outcomes: map[string]string{}, output: map[string]string{}}
	for {
		r := s.process(t, env, all.tests(), suiteTime-time.Since(began))
		maps.Copy(all.outcomes, r.outcomes)
		maps.Copy(all.output, r.output)
		all.ended, all.failure = r.ended, r.failure
		var exit *exec.ExitError
		for test := range r.running {
			all.outcomes[test] = "fail"
		}
		if len(r.outcomes)+len(r.running) == 0 || !errors.As(r.failure, &exit) || exit.ExitCode() != exitPanic || time.Since(began) > suiteTime {
			break
		}
	}
	t.Logf("with %s: %s within %.0f s", with, countOutcomes(all.outcomes), time.Since(began).Seconds())
	return all
}

// process runs the tests of the suite without skipped in a new process, which ends with this one, for limit at most.
func (s *suite) process(t *testing.T, env, skipped []string, limit time.Duration) *results {
	t.Helper()
	// The folder of a test has a long name, but the path of the socket of etcd has at most 107 bytes: unix(7).
	home, err := os.MkdirTemp("", "suite")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	cmd := exec.Command(s.program, "-test.v=test2json", "-test.timeout="+limit.String())
	if len(skipped) > 0 {
		cmd.Args = append(cmd.Args, "-test.skip=^("+strings.Join(skipped, "|")+")$")
	}
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), append(env, "HOME="+home, "TMPDIR="+home, "KUBECONFIG="+os.DevNull, "GOMEMLIMIT=2GiB",
		"KUBE_INTEGRATION_ETCD_URL="+s.etcd,
		"http_proxy=", "https_proxy=", "HTTP_PROXY=", "HTTPS_PROXY=", "GOFLAGS=")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// The suite is a child of this process, and not of test2json, so that it ends with this process.
	filter := exec.Command("go", "tool", "test2json", "-t")
	events, err := filter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := filter.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = output, output
	out := make(chan *results)
	go func() { out <- readResults(events) }()
	if err := errors.Join(filter.Start(), cmd.Start()); err != nil {
		t.Fatal(err)
	}
	kill := func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	ended, bounded := make(chan struct{}), make(chan error, 1)
	go func() { bounded <- keepBounds(t, cmd.Process.Pid, limit, ended, kill) }()
	err = cmd.Wait()
	close(ended)
	// Kill the processes that the suite left running: they may hold its output open.
	kill()
	output.Close()
	r := <-out
	err = errors.Join(err, filter.Wait())
	r.failure = errors.Join(<-bounded, err)
	return r
}

// keepBounds kills a group of processes that uses more memory or time than it may.
func keepBounds(t *testing.T, group int, limit time.Duration, ended <-chan struct{}, kill func()) error {
	deadline := time.After(limit + 5*time.Minute)
	for {
		select {
		case <-ended:
			return nil
		case <-t.Context().Done():
			kill()
			return t.Context().Err()
		case <-deadline:
			kill()
			return fmt.Errorf("did not end within %v", limit)
		case <-time.After(time.Second):
		}
		if used := memoryOf(group); used > suiteMemory {
			kill()
			return fmt.Errorf("its processes use %d MiB", used>>20)
		}
	}
}

// memoryOf returns the resident memory of a group of processes.
func memoryOf(group int) (bytes int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may have spaces: proc_pid_stat(5).
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 22 || fields[2] != strconv.Itoa(group) {
			continue
		}
		if pages, err := strconv.Atoi(fields[21]); err == nil {
			bytes += pages * os.Getpagesize()
		}
	}
	return bytes
}
