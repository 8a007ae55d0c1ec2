package pace

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const childEnv = "PACE_TEST_CHILD"

// TestMain is also the program that the tests start.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, os.Getpid(), "started")
	if err := Relax(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(os.Getpid(), os.Args[1:], os.Getenv(childEnv), os.Getenv(relaxedEnv) == "")
	fmt.Println(slacks())
	r := relaxed(isRelaxed())
	r.look()
	fmt.Println(slacks())
	if r {
		runtime.GOMAXPROCS(2)
		r.look()
		fmt.Println(r, mostly(slacks()))
	}
	os.Exit(0)
}

// slacks are those of some threads that goroutines run on at the same time.
func slacks() string {
	const n = 8
	var mu sync.Mutex
	found := map[time.Duration]int{}
	var locked, done sync.WaitGroup
	locked.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			ns, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
			mu.Lock()
			found[time.Duration(ns)]++
			mu.Unlock()
			locked.Done()
			locked.Wait()
		})
	}
	done.Wait()
	return fmt.Sprint(found)
}

// mostly reports whether all threads but one have the usual slack: one that the
// monitor made meanwhile has not.
func mostly(slacks string) bool {
	return slacks == "map[50µs:8]" || slacks == "map[50µs:7 4ms:1]"
}

func TestRelax(t *testing.T) {
	// Children have that of this thread, and somebody may have set it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := setSlack(usualSlack); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		processors string
		started    int
		slacks     []string
	}{
		// The last are those of a process that gets a second processor.
		{"1", 2, []string{"map[4ms:8]", "map[4ms:8]", "false true"}},
		{"2", 1, []string{"map[50µs:8]", "map[50µs:8]"}},
	} {
		cmd := exec.Command(os.Args[0], "an argument", "--and=a flag")
		cmd.Env = append(os.Environ(), childEnv+"=as it was", "GOMAXPROCS="+c.processors)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		pid := cmd.Process.Pid
		want := fmt.Sprintln(pid, "[an argument --and=a flag]", "as it was", true) + strings.Join(c.slacks, "\n") + "\n"
		if string(out) != want {
			t.Errorf("with GOMAXPROCS=%s the program said %q, want %q", c.processors, out, want)
		}
		if want := strings.Repeat(fmt.Sprintln(pid, "started"), c.started); stderr.String() != want {
			t.Errorf("with GOMAXPROCS=%s it was executed so: %q, want %q", c.processors, stderr.String(), want)
		}
	}
}
