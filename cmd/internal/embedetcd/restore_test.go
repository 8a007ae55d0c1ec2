package embedetcd

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// takeSnapshot writes a snapshot to a file.
func takeSnapshot(t *testing.T, client *clientv3.Client, file string) {
	t.Helper()
	stream, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	data, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A member that was restored from a snapshot, or from the database of another one, has its keys.
// Its revision is raised, and a watch from a revision of before learns that it is too old.
func TestRestore(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "snapshot")
	s, client := start(t, dir, shortDir(t))
	put, err := client.Put(t.Context(), "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	takeSnapshot(t, client, file)
	client.Close()
	s.Close()
	d, err := ReadDatabase(file)
	if err != nil || d.Revision != put.Header.Revision || len(d.Members) != 1 {
		t.Errorf("the snapshot has %+v, %v; etcd had revision %d", d, err, put.Header.Revision)
	}
	for name, cfg := range map[string]RestoreConfig{
		"snapshot": {Snapshot: file}, "database": {Snapshot: DatabaseFile(dir), NoHash: true},
	} {
		cfg.Dir, cfg.BumpRevision, cfg.Logger = filepath.Join(t.TempDir(), "etcd"), 1000, slog.New(slog.DiscardHandler)
		if err := Restore(cfg); err != nil {
			t.Fatal(name, err)
		}
		s, client := start(t, cfg.Dir, shortDir(t))
		got, err := client.Get(t.Context(), "a")
		if err != nil || len(got.Kvs) != 1 || got.Header.Revision != put.Header.Revision+1000 {
			t.Errorf("%s: %v %v", name, got, err)
		}
		event := <-client.Watch(t.Context(), "a", clientv3.WithRev(put.Header.Revision+1))
		if !errors.Is(event.Err(), rpctypes.ErrCompacted) {
			t.Errorf("%s: watch from a revision of before: %v", name, event.Err())
		}
		client.Close()
		s.Close()
	}
}

// The snapshot of an etcd without keys has the revision that etcd reports.
func TestSnapshotWithoutKeys(t *testing.T) {
	t.Parallel()
	s, client := start(t, t.TempDir(), shortDir(t))
	defer s.Close()
	defer client.Close()
	file := filepath.Join(t.TempDir(), "snapshot")
	takeSnapshot(t, client, file)
	got, err := client.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	d, err := ReadDatabase(file)
	if err != nil || d.Revision != got.Header.Revision {
		t.Errorf("the snapshot has %+v, %v; etcd has revision %d", d, err, got.Header.Revision)
	}
}

// A snapshot that is damaged anywhere is not restored.
func TestRestoreOfDamagedSnapshot(t *testing.T) {
	t.Parallel()
	s, client := start(t, t.TempDir(), shortDir(t))
	file := filepath.Join(t.TempDir(), "snapshot")
	takeSnapshot(t, client, file)
	client.Close()
	s.Close()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), whole...)
	flipped[len(flipped)/2] ^= 1
	for name, data := range map[string][]byte{"empty": nil, "text": []byte(strings.Repeat("x", 40_000)), "truncated": whole[:len(whole)/2], "flipped": flipped} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Restore(RestoreConfig{Snapshot: file, Dir: filepath.Join(t.TempDir(), "etcd"), Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.HasPrefix(err.Error(), "restore etcd from ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
