package busypoll

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t testing.TB) *event {
	t.Helper()
	e, err := newEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
	return e
}

// Each signal is told, though nobody ever reads it: otherwise this does not end.
func TestEverySignalIsTold(t *testing.T) {
	e := open(t)
	for range 20000 {
		if err := e.pass(); err != nil {
			t.Fatal(err)
		}
	}
}

// Who waits for the network gets what has come there: with one processor, and a
// goroutine that always has something to do, the runtime would not look for 10 ms.
// The first pass finds it, at the latest; before the second one returns it has run.
func TestPassLetsTheNetworkIn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	reading := os.NewFile(uintptr(fds[1]), "socket")
	var got atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1); ; got.Add(1) {
			if _, err := reading.Read(b); err != nil {
				return
			}
		}
	}()
	e := open(t)
	for i := range int64(1000) {
		if _, err := unix.Write(fds[0], []byte{1}); err != nil { // not known to the runtime
			t.Fatal(err)
		}
		for range 2 {
			if err := e.pass(); err != nil {
				t.Fatal(err)
			}
		}
		if n := got.Load(); n != i+1 {
			t.Fatalf("%d of %d bytes are read", n, i+1)
		}
	}
	reading.Close()
	<-ended
}

// What one look costs a process that has nothing else to do.
func BenchmarkPass(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := open(b)
	for b.Loop() {
		if err := e.pass(); err != nil {
			b.Fatal(err)
		}
	}
}
