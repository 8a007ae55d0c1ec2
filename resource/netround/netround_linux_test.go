package netround

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// processors gives the process so many until the test ends.
func processors(t testing.TB, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func open(t testing.TB) *Round {
	t.Helper()
	e, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// Each signal is told, though nobody ever reads it: otherwise this does not end.
func TestEverySignalIsTold(t *testing.T) {
	e := open(t)
	for range 20000 {
		if err := e.Pass(); err != nil {
			t.Fatal(err)
		}
	}
}

// Who waits for the network gets what has come there in the course of two passes,
// unless another thread of the runtime took the event and does not get to pass it on,
// as happens on a busy machine. With one processor, and a goroutine that only lets
// others run, nobody would look for 10 ms.
func TestPassLetsTheNetworkIn(t *testing.T) {
	processors(t, 1)
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
	const bytes = 200
	soon := 0
	for i := range int64(bytes) {
		if _, err := unix.Write(fds[0], []byte{1}); err != nil { // not known to the runtime
			t.Fatal(err)
		}
		passes := 0
		for ; got.Load() == i; passes++ {
			if err := e.Pass(); err != nil {
				t.Fatal(err)
			}
		}
		if passes <= 2 {
			soon++
		}
	}
	if soon < bytes/2 {
		t.Errorf("%d of %d bytes were read in the course of two passes", soon, bytes)
	}
	reading.Close()
	<-ended
}

// What one look costs a process that has nothing else to do.
func BenchmarkPass(b *testing.B) {
	processors(b, 1)
	e := open(b)
	for b.Loop() {
		if err := e.Pass(); err != nil {
			b.Fatal(err)
		}
	}
}
