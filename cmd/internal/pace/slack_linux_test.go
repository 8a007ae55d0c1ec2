package pace

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const childEnv = "PACE_TEST_CHILD"

// TestMain is also the program that the tests start.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	started, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	fmt.Fprintln(os.Stderr, os.Getpid(), "started with", started)
	if err := Relax(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(os.Getpid(), os.Args[1:], os.Getenv(childEnv), threadSlack())
	os.Exit(0)
}

// threadSlack is what a thread has that the runtime started.
func threadSlack() int {
	c := make(chan int)
	runtime.LockOSThread() // so that the other is on another thread
	defer runtime.UnlockOSThread()
	go func() {
		runtime.LockOSThread()
		ns, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		c <- ns
	}()
	return <-c
}

// startRelaxed runs the program and returns what it says on both ways, and its
// process id.
func startRelaxed(t *testing.T) (out, trace string, pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "an argument", "--and=a flag")
	cmd.Env = append(os.Environ(), childEnv+"=as it was")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return string(data), stderr.String(), cmd.Process.Pid
}

func TestRelax(t *testing.T) {
	out, trace, pid := startRelaxed(t)
	if want := fmt.Sprintln(pid, "[an argument --and=a flag]", "as it was", int(slack)); out != want {
		t.Errorf("the program said %q, want %q", out, want)
	}
	if n := strings.Count(trace, fmt.Sprint(pid, " started with")); n != 2 {
		t.Errorf("was executed %d times, want 2:\n%s", n, trace)
	}
}

// Who is started with the slack is not executed twice.
func TestRelaxOnce(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	out, trace, pid := startRelaxed(t)
	if want := fmt.Sprintln(pid, "[an argument --and=a flag]", "as it was", int(slack)); out != want {
		t.Errorf("the program said %q, want %q", out, want)
	}
	if want := fmt.Sprintln(pid, "started with", int(slack)); trace != want {
		t.Errorf("was executed so: %q, want %q", trace, want)
	}
}
