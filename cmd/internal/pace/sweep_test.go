package pace

import (
	"context"
	"net"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// answers has two ends of a connection answer each other until the test ends, and
// counts.
func answers(t *testing.T) *atomic.Uint64 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	var n atomic.Uint64
	answer := func(c net.Conn) {
		for b := make([]byte, 1); ; n.Add(1) {
			if _, err := c.Read(b); err != nil {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
	go answer(near)
	go answer(far)
	if _, err := near.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	return &n
}

// litter makes garbage of so many bytes, with something that is none in each
// thousandth of it.
func litter(bytes int) (kept []*[64]byte) {
	for i := range bytes / 64 {
		if o := new([64]byte); i%1000 == 0 {
			kept = append(kept, o)
		}
	}
	return kept
}

// While a process with one processor sweeps, what comes from the network is answered.
// Without letNetworkIn that is so in none of the rounds.
func TestNetworkDuringSweep(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	percent := debug.SetGCPercent(-1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before); debug.SetGCPercent(percent) })
	answered := answers(t)
	freed := []metrics.Sample{{Name: "/gc/heap/frees:objects"}}
	sweeps, served := 0, 0
	for try := 0; sweeps < 50; try++ {
		if try == 100 {
			t.Fatalf("saw sweeping going on %d times only", sweeps)
		}
		kept := litter(100 << 20)
		ctx, cancel := context.WithCancel(t.Context())
		marked, done := newMarks(), make(chan struct{})
		go func() {
			defer close(done)
			<-marked
			letNetworkIn(ctx)
		}()
		// What looks on is ready as soon as its time has come, and so asks nobody to
		// look at the network.
		collect()
		metrics.Read(freed)
		last, seen := freed[0].Value.Uint64(), answered.Load()
		for before, going := -1, true; going; {
			time.Sleep(2 * letInEvery)
			metrics.Read(freed)
			f, a := freed[0].Value.Uint64(), answered.Load()
			// That there was something to sweep all the time is known of a round when
			// something was freed in the next one.
			if going = f != last; going && before >= 0 {
				sweeps, served = sweeps+1, served+before
			}
			if before = 0; a != seen {
				before = 1
			}
			last, seen = f, a
		}
		cancel()
		<-done
		runtime.KeepAlive(kept)
	}
	t.Logf("answered in %d of %d rounds", served, sweeps)
	if served < sweeps/2 {
		t.Errorf("in %d of %d rounds of sweeping anybody was answered", served, sweeps)
	}
}

// collect begins a collection and returns when all is marked.
func collect() {
	debug.SetGCPercent(1)
	large = make([]byte, 64<<10) // collects at once if it is time
	debug.SetGCPercent(-1)
}

var large []byte
