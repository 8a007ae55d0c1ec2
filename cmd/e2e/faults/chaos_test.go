package faults

import (
	"fmt"
	"portico/cmd/e2e"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Everything that can die is killed, and etcd stopped, under load. See
// chaosLoad for what must hold.
func TestChaos(t *testing.T) {
	t.Parallel()
	etcd := e2e.StartEtcd(t)
	up := e2e.Install(t, t.TempDir(), "--etcd-servers="+etcd.Endpoint())
	load := startChaosLoad(t, up)
	kill := func(child string) func() {
		return func() {
			if err := syscall.Kill(up.Child(t, child), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, fault := range []struct {
		name string
		do   func()
	}{
		{"kill -9 of the CRD server", kill("crd")},
		{"kill -9 of the core server", kill("core")},
		{"kill -9 of the gateway", kill("gateway")},
		{"kill -9 of etcd", func() { etcd.Kill(); etcd.Start(t) }},
		{"etcd stopped for 5 s", func() {
			if err := etcd.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if err := etcd.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		load.awaitProgress(t, "before "+fault.name)
		fault.do()
		began := time.Now()
		load.awaitProgress(t, "after "+fault.name)
		t.Logf("%s: all clients at work again after %v", fault.name, time.Since(began).Round(time.Millisecond))
	}
	load.finish(t)
}

// ledger is what clients know of their objects.
type ledger struct {
	mu      sync.Mutex
	entries map[string]entry
}

// entry is what is known of one object. Each has one writer, which leaves it
// alone once it was not told how a write ended: that may happen later still.
type entry struct {
	version int // grows with each note
	// present and n are how it is; unknown says that a write of n is under way,
	// or that nobody knows how it ended.
	present, unknown bool
	n                int
}

func (l *ledger) note(name string, e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.version = l.entries[name].version + 1
	l.entries[name] = e
}

func (l *ledger) copy() map[string]entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]entry, len(l.entries))
	for name, e := range l.entries {
		all[name] = e
	}
	return all
}

// differs says what is wrong about a list, by name and n, that was read while
// the ledger went from before to after. Objects that were written meanwhile may
// be in either state.
func differs(before, after map[string]entry, listed map[string]int) error {
	for name, e := range before {
		if e.unknown || after[name] != e {
			continue
		}
		n, there := listed[name]
		switch {
		case there && !e.present:
			return fmt.Errorf("%s is there, and its delete was acknowledged", name)
		case !there && e.present:
			return fmt.Errorf("%s is not there, and its write of %d was acknowledged", name, e.n)
		case there && n != e.n:
			return fmt.Errorf("%s is %d, and its write of %d was acknowledged", name, n, e.n)
		}
	}
	return nil
}
