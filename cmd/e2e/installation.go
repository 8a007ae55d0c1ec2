// Package e2e starts installations of portico for end-to-end tests, and holds what several
// packages of them share: clients, objects, the Kubernetes project's sample-apiserver. The
// tests are in its subfolders, one for each subject, and in cmd/portico.
//
// Runs in: tests.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// Program builds a program of [testtools] if needed and returns its path.
func Program(t *testing.T, name string) string {
	t.Helper()
	NeedsInstallation(t)
	path, err := testtools.Build(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// shared is the installation of SharedInstallation; sharedArgs are its flags.
var (
	sharedArgs []string
	shared     = sync.OnceValues(func() (*Installation, error) {
		dir, err := os.MkdirTemp("", "portico-e2e")
		if err != nil {
			return nil, err
		}
		return Launch(dir, sharedArgs...)
	})
)

// MainUnlessShort is Main for a package in which all tests need an installation: with -short
// it runs none of them.
func MainUnlessShort(m *testing.M, args ...string) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("end-to-end tests do not run with -short")
		return 0
	}
	return Main(m, args...)
}

// testsAtOnce is the default of -parallel for each processor: tests wait for processes most of the time.
const testsAtOnce = 3

// Main runs the tests of a package, stops the shared installation and returns the exit code.
// args are the flags of that installation. It is for TestMain.
func Main(m *testing.M, args ...string) int {
	beLauncher()
	flag.Parse()
	if !isSet("test.parallel") {
		flag.Set("test.parallel", strconv.Itoa(testsAtOnce*runtime.NumCPU()))
	}
	sharedArgs = args
	sharedUsed := false
	useShared = func() (*Installation, error) {
		sharedUsed = true
		return shared()
	}
	code := m.Run()
	if sharedUsed {
		if up, err := shared(); err == nil {
			if err := up.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stop shared installation:", err)
				code = 1
			}
			os.RemoveAll(up.Dir)
		}
	}
	return code
}

// launcherEnv names a data folder. It makes the test binary a program that starts an
// installation there, prints the process id of `portico up` and its endpoint, and waits to
// be killed.
const launcherEnv = "E2E_LAUNCH"

func beLauncher() {
	dir := os.Getenv(launcherEnv)
	if dir == "" {
		return
	}
	up, err := Launch(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(up.Cmd.Process.Pid, up.Endpoint)
	select {}
}

// LaunchElsewhere starts an installation from another process; kill kills that process.
func LaunchElsewhere(t *testing.T, dir string) (up *Installation, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), launcherEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill()
		_ = cmd.Wait() // its error is that it was killed
	})
	t.Cleanup(kill)
	var pid int
	up = &Installation{&testtools.Installation{Dir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig")}}
	if _, err := fmt.Fscan(out, &pid, &up.Endpoint); err != nil {
		t.Fatal("read process id of the installation:", err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	up.Cmd = &exec.Cmd{Process: process}
	return up, kill
}

// isSet reports whether a flag is on the command line.
func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// useShared returns the shared installation and records that it was used.
var useShared func() (*Installation, error)

// SharedInstallation returns an installation that all tests of the package share. They must
// not stop processes of it, and must work on objects of their own.
func SharedInstallation(t *testing.T) *Installation {
	t.Helper()
	NeedsInstallation(t)
	up, err := useShared()
	if err != nil {
		t.Fatal(err)
	}
	return up
}

// Installation is a running `portico up`, or processes that are started one by one.
type Installation struct{ *testtools.Installation }

// NeedsInstallation leaves out a test with -short.
func NeedsInstallation(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an installation")
	}
}

// Install starts an installation for one test, which stops it at its end.
func Install(t *testing.T, dir string, args ...string) *Installation {
	t.Helper()
	return InstallWith(t, nil, dir, args...)
}

// InstallWith is Install with further variables in the environment.
func InstallWith(t *testing.T, env []string, dir string, args ...string) *Installation {
	t.Helper()
	NeedsInstallation(t)
	launched, err := testtools.LaunchWith(env, dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	up := &Installation{launched}
	t.Cleanup(func() {
		if err := up.Stop(); err != nil && !t.Failed() {
			t.Error(err)
		}
		if t.Failed() {
			up.DumpLogs(t)
		}
	})
	return up
}

// Launch starts `portico up` on a free port and returns when it is ready.
func Launch(dir string, args ...string) (*Installation, error) {
	up, err := testtools.Launch(dir, args...)
	if err != nil {
		return nil, err
	}
	return &Installation{up}, nil
}

// Child returns the process id of the child that runs the subcommand.
func (up *Installation) Child(t *testing.T, subcommand string) int {
	t.Helper()
	var pid int
	Eventually(t, "there is a child "+subcommand, func() error {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", up.Cmd.Process.Pid))
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
		return fmt.Errorf("no child %s of %d", subcommand, up.Cmd.Process.Pid)
	})
	return pid
}

// Config returns the administrator's client configuration, with a high rate limit.
func (up *Installation) Config(t *testing.T) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", up.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 1000, 1000
	return cfg
}

// Client returns a client of the administrator.
func (up *Installation) Client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(up.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// KubectlCommand returns a command of the real kubectl as the administrator. It takes a
// tenth of a second of processor time or more: a test that polls sends requests instead.
func (up *Installation) KubectlCommand(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, Program(t, testtools.Kubectl), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+up.Kubeconfig, "HOME="+up.Dir, "KUBECACHEDIR="+filepath.Join(up.Dir, "kubecache"), NoCollector)
	return cmd
}

// NoCollector is a variable of the environment of kubectl: collecting garbage is a fifth of the
// processor time of a command that lives for a tenth of a second.
const NoCollector = "GOGC=off"

// Kubectl runs the real kubectl and returns its output.
func (up *Installation) Kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	Program(t, testtools.Kubectl) // the wait below does not include building it
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	out, err := up.KubectlCommand(ctx, t, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// MustKubectl is Kubectl for a command that must succeed.
func (up *Installation) MustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := up.Kubectl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// DumpLogs logs the output of the supervisor and the end of each log file.
func (up *Installation) DumpLogs(t *testing.T) {
	if up.Output != nil {
		t.Logf("up:\n%s", up.Output)
	}
	logs, _ := filepath.Glob(filepath.Join(up.Dir, "logs", "*.log"))
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

// Eventually polls until ok returns nil, and returns how long that took.
func Eventually(t *testing.T, what string, ok func() error) (took time.Duration) {
	t.Helper()
	began := time.Now()
	for deadline := began.Add(await.Patience()); ; time.Sleep(20 * time.Millisecond) {
		err := ok()
		if err == nil {
			return time.Since(began)
		}
		if time.Now().After(deadline) {
			t.Fatalf("not before the test's time is over: %s: %v", what, err)
		}
	}
}

// Within is Eventually for what may take no longer than bar, see [await.Bar].
func Within(t *testing.T, bar time.Duration, what string, ok func() error) {
	t.Helper()
	await.Bar(t, what, Eventually(t, what, ok), bar)
}

// Alive reports whether a process runs; one that waits to be reaped does not.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// Repository returns the root of the working copy.
func Repository() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	panic("no go.mod above the folder of the test")
}
