package lastgood

import (
	"context"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"portico/resource/etcd"
)

// newEtcd returns the documents of a real etcd.
func newEtcd(t *testing.T) *etcd.Documents {
	t.Helper()
	dir, err := os.MkdirTemp("", "l") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "d")
	client, peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, "e")}, url.URL{Scheme: "unix", Path: filepath.Join(dir, "p")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs, cfg.UnsafeNoFsync = 10, 100, true
	cfg.LogLevel, cfg.LogOutputs = "error", []string{os.DevNull}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd does not become ready")
	}
	c, err := etcd.Open(etcd.Config{Endpoints: []string{client.String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Documents("gateway")
}

// life is a gateway from its start to its end: what it has a server say to it ("" is
// nothing), and whether it is elected.
type life struct {
	stateDir string
	says     string
	elected  bool
}

// live returns what such a gateway knew when etcd was read.
func (l life) live(t *testing.T, documents *etcd.Documents) (known string) {
	t.Helper()
	k, err := New(Config{
		Etcd: documents, StateDir: l.stateDir,
		Now: func(context.Context) []Document {
			if l.says == "" {
				return nil
			}
			return []Document{{Name: "backend/a", State: l.says, Value: func() any { return l.says }}}
		},
		Restore:  func(_ string, data []byte) error { return Unpack(data, &known) },
		Gone:     func() func(string) bool { return func(string) bool { return false } },
		CopyOnly: func(string) bool { return false },
		Away:     func(map[string][]byte) {},
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
	if l.elected {
		last := &term{Keeper: k, next: map[string]time.Time{}, refused: map[string]int{}}
		if err := last.turn(ctx, true); err != nil {
			t.Fatal(err)
		}
	}
	cancel() // the local copy is written once more then
	running.Wait()
	return known
}

// Etcd may have what is older than the local copy: it was not written again before the
// gateway was killed, or the document has become too large for it. It may as well have
// what another gateway wrote since. The newer one counts.
func TestNewerCounts(t *testing.T) {
	large := make([]byte, 2*maxKept) // what hardly gets smaller
	for i := range large {
		large[i] = byte('0' + rand.N(64))
	}
	here := t.TempDir()
	for name, tc := range map[string]struct {
		then life
		want string
	}{
		"not written to etcd yet":    {life{stateDir: here, says: "second"}, "second"},
		"too large for etcd":         {life{stateDir: here, says: string(large), elected: true}, string(large)},
		"written by another gateway": {life{says: "third", elected: true}, "third"},
	} {
		documents := newEtcd(t)
		if err := os.RemoveAll(filepath.Join(here, copyName)); err != nil {
			t.Fatal(err)
		}
		life{stateDir: here, says: "first", elected: true}.live(t, documents)
		if got := (life{stateDir: here}).live(t, documents); got != "first" {
			t.Fatalf("%s: a gateway that starts again knows %.20q", name, got)
		}
		tc.then.live(t, documents)
		// Who starts knows it, and does not go back on it when it is elected.
		for range 2 {
			if got := (life{stateDir: here, elected: true}).live(t, documents); got != tc.want {
				t.Errorf("%s: known is %.20q, want %.20q", name, got, tc.want)
			}
		}
	}
}

// Documents from before it was said when they were made are older than those that say
// it, and among themselves the one in etcd counts.
func TestMade(t *testing.T) {
	made := func(text string, at uint32) []byte {
		data, err := Pack(text)
		if err != nil {
			t.Fatal(err)
		}
		setMade(data, at)
		return data
	}
	for _, tc := range []struct {
		name         string
		copied, read uint32
		want         string
	}{
		{"both from before", 0, 0, "etcd"},
		{"the copy is from before", 0, 5, "etcd"},
		{"what is in etcd is from before", 5, 0, "copy"},
		{"the copy is older", 5, 6, "etcd"},
		{"the copy is newer", 6, 5, "copy"},
		{"of one second", 5, 5, "etcd"},
	} {
		var known string
		k, err := New(Config{
			Now:     func(context.Context) []Document { return nil },
			Restore: func(_ string, data []byte) error { return Unpack(data, &known) },
			Gone:    func() func(string) bool { return func(string) bool { return false } },
		})
		if err != nil {
			t.Fatal(err)
		}
		k.Restore(map[string][]byte{"x": made("copy", tc.copied)})
		k.Restore(map[string][]byte{"x": made("etcd", tc.read)})
		if known != tc.want {
			t.Errorf("%s: the one of %s counts", tc.name, known)
		}
		// It does not change because it is said again.
		old := k.Documents(t.Context())["x"]
		k.cfg.Now = func(context.Context) []Document {
			return []Document{{Name: "x", State: 1, Value: func() any { return known }}}
		}
		if again := k.Documents(t.Context())["x"]; &again[0] != &old[0] {
			t.Errorf("%s: what is said again is another document", tc.name)
		}
	}
	late := uint32(time.Now().Add(24 * time.Hour).Unix())
	if at := madeAfter(made("x", late)); at != late+1 {
		t.Errorf("after one of tomorrow it is made at %d, want %d", at, late+1)
	}
}
