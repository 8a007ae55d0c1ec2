package lastgood

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portico/discovery"
	"portico/internal/testing/etcdtest"
	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/rest"
)

// A document that unpacks to more than the bound is refused.
func TestUnpackIsBounded(t *testing.T) {
	t.Parallel()
	large, err := Pack(strings.Repeat("x", maxUnpacked))
	if err != nil {
		t.Fatal(err)
	}
	var into string
	if err := Unpack(large, &into); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("%d bytes unpack to more than the bound: %v", len(large), err)
	}
}

// newEtcd returns the documents of a real etcd.
func newEtcd(t *testing.T) *etcd.Documents {
	t.Helper()
	c, err := etcd.Open(etcd.Config{Endpoints: []string{etcdtest.Start(t).DirectEndpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Documents("gateway")
}

// gatewayRun is one run of a gateway: what it reads from a server ("": nothing), and whether
// it is elected.
type gatewayRun struct {
	stateDir string
	reads    string
	elected  bool
}

// run returns what the gateway knew after etcd was read.
func (g gatewayRun) run(t *testing.T, documents *etcd.Documents) (known string) {
	t.Helper()
	k, err := New(Config{
		Etcd: documents, StateDir: g.stateDir, Logger: slog.New(slog.DiscardHandler),
		Current: func(context.Context) []Document {
			if g.reads == "" {
				return nil
			}
			return []Document{{Name: "backend/a", State: g.reads, Value: func() any { return g.reads }}}
		},
		Restore:     func(_ string, data []byte) error { return Unpack(data, &known) },
		Gone:        func() func(string) bool { return func(string) bool { return false } },
		LocalOnly:   func(string) bool { return false },
		WithoutEtcd: func(map[string][]byte) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { _ = k.Run(ctx) })
	if !k.Await(ctx) {
		t.Fatal("etcd was not read")
	}
	if g.elected {
		w := &etcdWriter{Keeper: k, next: map[string]time.Time{}}
		if err := w.save(ctx, true); err != nil {
			t.Fatal(err)
		}
	}
	cancel() // the local file is written once more then
	running.Wait()
	return known
}

// A gateway restores the later one of the document in etcd and the one in its file: the
// file is later if the gateway was killed before it wrote etcd or the document is too large
// for etcd, and etcd is later if another gateway wrote it.
func TestLaterDocumentIsRestored(t *testing.T) {
	t.Parallel()
	large := make([]byte, 2*maxEtcdDocument) // hardly compressible
	for i := range large {
		large[i] = byte('0' + rand.N(64))
	}
	for name, tc := range map[string]struct {
		then gatewayRun
		want string
	}{
		"not written to etcd yet":    {gatewayRun{stateDir: "here", reads: "second"}, "second"},
		"too large for etcd":         {gatewayRun{stateDir: "here", reads: string(large), elected: true}, string(large)},
		"written by another gateway": {gatewayRun{reads: "third", elected: true}, "third"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents, here := newEtcd(t), t.TempDir()
			gatewayRun{stateDir: here, reads: "first", elected: true}.run(t, documents)
			if tc.then.stateDir != "" {
				tc.then.stateDir = here
			}
			tc.then.run(t, documents)
			for range 2 {
				if got := (gatewayRun{stateDir: here, elected: true}).run(t, documents); got != tc.want {
					t.Errorf("restored %.20q, want %.20q", got, tc.want)
				}
			}
		})
	}
}

// An invalid local file is ignored and replaced; only the user of the process can read it.
func TestInvalidFile(t *testing.T) {
	t.Parallel()
	documents, dir := newEtcd(t), t.TempDir()
	file := filepath.Join(dir, "last-good")
	for _, invalid := range []string{"", "portico last-good 1\n", `{"backend/a":"MQ=="}`} {
		if err := os.WriteFile(file, []byte(invalid), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (gatewayRun{stateDir: dir}).run(t, documents); got != "" {
			t.Errorf("%q: restored %q", invalid, got)
		}
	}
	gatewayRun{stateDir: dir, reads: "x"}.run(t, documents)
	if got := (gatewayRun{stateDir: dir}).run(t, documents); got != "x" {
		t.Errorf("restored %q after an invalid file was replaced", got)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// Whatever a document contains, discovery can be built from what is restored of it.
func FuzzGroupVersions(f *testing.F) {
	for _, v := range []any{[]Version{{Version: "v1"}}, Versions(discovery.FromKinds([]*rest.Kind{{Info: resource.Info{Group: "a.example.com", Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget"}}})), "x"} {
		data, err := Pack(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var saved []Version
		if Unpack(data, &saved) != nil {
			return
		}
		gvs, err := GroupVersions(saved)
		if err != nil {
			return
		}
		if _, err := discovery.Build(gvs, ""); err != nil {
			t.Fatalf("discovery of restored group/versions: %v", err)
		}
	})
}
