package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/internal/testtools"
)

// patienceInTests bounds every wait: far above what any of them takes, so that
// a busy machine does not fail a test.
const patienceInTests = testtools.Patience

// programs builds what the tests run, once.
var programs = sync.OnceValues(testtools.Build)

// shared is an installation that several tests use, none of which stops or
// kills anything of it.
var shared = sync.OnceValues(func() (*installation, error) {
	dir, err := os.MkdirTemp("", "portico-e2e")
	if err != nil {
		return nil, err
	}
	return launch(dir)
})

// testsAtOnce is how many tests run at a time unless -parallel says so: they wait for
// processes most of the time.
const testsAtOnce = "6"

// runTests runs the tests of a package, stops the shared installation and returns the
// exit code. It is for TestMain.
func runTests(m *testing.M) int {
	beEtcd()
	flag.Parse()
	if !isSet("test.parallel") {
		flag.Set("test.parallel", testsAtOnce)
	}
	sharedUsed := false
	useShared = func() (*installation, error) {
		sharedUsed = true
		return shared()
	}
	code := m.Run()
	if sharedUsed {
		if up, err := shared(); err == nil {
			if err := up.stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stop shared installation:", err)
				code = 1
			}
			os.RemoveAll(up.dir)
		}
	}
	return code
}

// isSet reports whether a flag is on the command line.
func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// useShared is shared, remembering that it was used.
var useShared func() (*installation, error)

// sharedInstallation returns the shared installation.
func sharedInstallation(t *testing.T) *installation {
	t.Helper()
	up, err := useShared()
	if err != nil {
		t.Fatal(err)
	}
	return up
}

// installation is a running `portico up`, or processes that are started one by
// one in its stead.
type installation struct {
	dir        string // the data folder
	endpoint   string
	kubeconfig string
	etcd       string
	cmd        *exec.Cmd
	output     *testtools.Output
	exited     <-chan error
	running    *testtools.Installation // nil: processes that are started one by one
}

// install starts an installation of the test's own.
func install(t *testing.T, dir string, args ...string) *installation {
	t.Helper()
	up, err := launch(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := up.stop(); err != nil && !t.Failed() {
			t.Error(err)
		}
		if t.Failed() {
			up.dumpLogs(t)
		}
	})
	return up
}

// launch starts `portico up` on a free port and returns when it is ready.
func launch(dir string, args ...string) (*installation, error) {
	p, err := programs()
	if err != nil {
		return nil, err
	}
	running, err := testtools.Launch(p.Portico, dir, args...)
	if err != nil {
		return nil, err
	}
	return &installation{
		dir: dir, endpoint: running.Endpoint, kubeconfig: running.Kubeconfig, etcd: running.Etcd,
		cmd: running.Cmd, output: running.Output, exited: running.Exited, running: running,
	}, nil
}

// stop ends it in order. Stopping what has ended is no error.
func (up *installation) stop() error { return up.running.Stop() }

// child returns the process id of the child that runs the subcommand.
func (up *installation) child(t *testing.T, subcommand string) int {
	t.Helper()
	var pid int
	eventually(t, "there is a child "+subcommand, func() error {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", up.cmd.Process.Pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			data, _ := os.ReadFile(task)
			for _, field := range strings.Fields(string(data)) {
				args, _ := os.ReadFile("/proc/" + field + "/cmdline")
				if parts := bytes.Split(args, []byte{0}); len(parts) > 1 && string(parts[1]) == subcommand {
					pid, err = strconv.Atoi(field)
					return err
				}
			}
		}
		return fmt.Errorf("no child %s of %d", subcommand, up.cmd.Process.Pid)
	})
	return pid
}

func (up *installation) config(t *testing.T) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", up.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 1000, 1000
	return cfg
}

func (up *installation) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(up.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kubectl runs the real kubectl as the administrator.
func (up *installation) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	p, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patienceInTests)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+up.kubeconfig, "HOME="+up.dir, "KUBECACHEDIR="+filepath.Join(up.dir, "kubecache"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (up *installation) mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := up.kubectl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (up *installation) dumpLogs(t *testing.T) {
	t.Logf("up:\n%s", up.output)
	logs, _ := filepath.Glob(filepath.Join(up.dir, "logs", "*.log"))
	for _, name := range logs {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		var last []string
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if last = append(last, lines.Text()); len(last) > 40 {
				last = last[1:]
			}
		}
		f.Close()
		t.Logf("end of %s:\n%s", filepath.Base(name), strings.Join(last, "\n"))
	}
}

// eventually polls until ok returns nil.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	within(t, patienceInTests, what, ok)
}

// within polls until ok returns nil, for at most limit.
func within(t *testing.T, limit time.Duration, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s: %v", limit, what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// alive reports whether a process runs; one that waits to be reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// repository returns the root of the working copy: tests run in the folder of their
// package.
func repository() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	panic("no go.mod above the folder of the test")
}
