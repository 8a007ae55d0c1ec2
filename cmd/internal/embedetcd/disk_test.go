package embedetcd

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"portico/internal/testing/await"
)

// While the disk is nearly full, requests that store more are refused as at the
// quota, reads and deletions pass, and writes pass again once there is room.
func TestNearlyFullDisk(t *testing.T) {
	t.Parallel()
	var free atomic.Uint64
	free.Store(diskReserve)
	s, client := startWith(t, Config{
		Dir: t.TempDir(), SocketDir: shortDir(t), FreeSpace: func(string) (uint64, error) { return free.Load(), nil },
	})
	defer s.Close()
	defer client.Close()
	ctx := t.Context()
	if _, err := client.Put(ctx, "a", "1"); err != nil {
		t.Fatal(err)
	}
	free.Store(diskReserve - 1)
	refused := map[string]func() error{
		"put":         func() error { _, err := client.Put(ctx, "b", "1"); return err },
		"lease":       func() error { _, err := client.Grant(ctx, 60); return err },
		"transaction": func() error { _, err := client.Txn(ctx).Then(clientv3.OpPut("b", "1")).Commit(); return err },
		"transaction that puts otherwise": func() error {
			_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Version("a"), "=", 1)).Else(clientv3.OpPut("b", "1")).Commit()
			return err
		},
		"nested transaction": func() error {
			_, err := client.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("b", "1")}, nil)).Commit()
			return err
		},
	}
	for name, write := range refused {
		if err := write(); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("%s: got %v, want ErrNoSpace", name, err)
		}
	}
	if got, err := client.Get(ctx, "a"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("read: %v, %v", got, err)
	}
	if _, err := client.Txn(ctx).Then(clientv3.OpDelete("a"), clientv3.OpGet("a")).Commit(); err != nil {
		t.Errorf("deletion: %v", err)
	}
	if s.alarmed(etcdserverpb.AlarmType_NOSPACE) {
		t.Error("the alarm of the quota was raised: it would outlast the lack of space")
	}
	free.Store(diskReserve)
	for name, write := range refused {
		if err := write(); err != nil {
			t.Errorf("%s, with room again: %v", name, err)
		}
	}
}

// On a nearly full disk the space of removed objects goes back to the disk, if the
// copy that this takes fits.
func TestNearlyFullDiskIsGivenSpaceBack(t *testing.T) {
	t.Parallel()
	var free atomic.Uint64
	free.Store(diskReserve)
	s, client := startWith(t, Config{
		Dir: t.TempDir(), SocketDir: shortDir(t), FreeSpace: func(string) (uint64, error) { return free.Load(), nil },
	})
	defer s.Close()
	defer client.Close()
	ctx, value := t.Context(), strings.Repeat("x", 1<<20)
	for range 2 * shrinkWorth >> 20 {
		if _, err := client.Put(ctx, "a", value); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := client.Delete(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	before := s.etcd.Server.Backend().Size()
	free.Store(1 << 20)
	if err := s.relieveOnce(ctx, gone.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if size := s.etcd.Server.Backend().Size(); size < before {
		t.Errorf("the database was copied to a disk that has no room: %d bytes, %d before", size, before)
	}
	free.Store(diskReserve - 1)
	// bbolt counts the pages of removed values as free some commits later; relieve looks again.
	for deadline := time.Now().Add(await.Patience()); ; time.Sleep(20 * time.Millisecond) {
		if err := s.relieveOnce(ctx, gone.Header.Revision); err != nil {
			t.Fatal(err)
		}
		size := s.etcd.Server.Backend().Size()
		if size <= shrinkWorth/2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the database still has %d bytes, %d before", size, before)
		}
	}
}

// What etcd cannot continue after is handed to the caller in one line.
func TestFatalMessages(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var got []string
	lg := newZapLogger(slog.New(slog.NewTextHandler(&out, nil)), new(atomic.Bool), func(err error) { got = append(got, err.Error()) })
	lg.Fatal("failed to commit tx", zap.String("db", "x"), zap.Error(errors.New("no space left on device")))
	lg.Panic("failed to open database")
	if want := "failed to commit tx: no space left on device|failed to open database"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := strings.Count(out.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d of 2 messages were logged:\n%s", n, out.String())
	}
}
