package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/internal/testing/await"
)

// Every process is killed, etcd is stopped for a while, and its history is compacted, under
// load; chaosLoad says what must hold. Informers are kept from reconnecting until each fault
// has passed, so that there are changes that they have missed.
func TestChaos(t *testing.T) {
	t.Parallel()
	etcd := etcdprocess.Start(t)
	up := e2e.Install(t, t.TempDir(), "--etcd-servers="+etcd.Endpoint())
	load := startChaosLoad(t, up)
	compact := compactor(t, etcd.Endpoint())
	for i, fault := range []struct {
		name string
		do   func()
	}{
		{"informers disconnected", func() {}},
		{"kill -9 of the CRD server", func() { up.Kill9(t, "crd") }},
		{"compaction", compact},
		{"kill -9 of the core server", func() { up.Kill9(t, "core") }},
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
		{"kill -9 of the gateway", func() { up.Kill9(t, "gateway") }},
		{"kill -9 of all servers, with compactions between", func() {
			up.Kill9(t, "core")
			compact()
			up.Kill9(t, "crd")
			compact()
			up.Kill9(t, "gateway")
		}},
	} {
		load.awaitProgress(t, "before "+fault.name)
		load.informersOff.Store(true)
		fault.do()
		began := time.Now()
		load.awaitProgress(t, "after "+fault.name)
		load.informersOff.Store(false)
		load.awaitInformers(t)
		t.Logf("%s: all clients make progress after %v", fault.name, time.Since(began).Round(time.Millisecond))
		load.define(t, fmt.Sprintf("chaos-%d.example.com", i))
	}
	load.finish(t)
	for server, series := range map[string]string{"crd": `group="` + chaosGroup + `",resource="widgets"`, "core": `group="",resource="configmaps"`} {
		if !strings.Contains(up.Metrics(t, server), "apiserver_watch_list_duration_seconds_count{"+series) {
			t.Errorf("informers made no watch-list of %s", series)
		}
	}
}

// compactor returns a function that compacts etcd's history up to the current revision.
func compactor(t *testing.T, endpoint string) func() {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
		defer cancel()
		now, err := client.Get(ctx, "/")
		if err != nil {
			t.Fatal(err)
		}
		// Between two compactions there may be no write.
		if _, err := client.Compact(ctx, now.Header.Revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			t.Fatal(err)
		}
	}
}

// ledger records what writers know about their objects.
type ledger struct {
	mu      sync.Mutex
	entries map[string]entry
}

// entry is what is known about one object. Each object has one writer, which does not write
// it again after a write with an unknown result, because that may take effect later.
type entry struct {
	version int // grows with each note
	// present and n are the state; unknown means that a write of n is in flight or that
	// its result is unknown.
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

// differs compares a list, n by name, with the ledger: before it was read and after. Objects
// that were written between the two may be in either state.
func differs(before, after map[string]entry, listed map[string]int) error {
	for name, e := range before {
		if e.unknown || after[name] != e {
			continue
		}
		n, there := listed[name]
		switch {
		case there && !e.present:
			return fmt.Errorf("%s exists, and its delete was acknowledged", name)
		case !there && e.present:
			return fmt.Errorf("%s does not exist, and its write of %d was acknowledged", name, e.n)
		case there && n != e.n:
			return fmt.Errorf("%s is %d, and its write of %d was acknowledged", name, n, e.n)
		}
	}
	return nil
}
