package embedetcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

func start(t *testing.T, dir, sockets string) (*Server, *clientv3.Client) {
	t.Helper()
	return startWith(t, Config{Dir: dir, SocketDir: sockets})
}

func startWith(t *testing.T, cfg Config) (*Server, *clientv3.Client) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.OnFatal == nil {
		cfg.OnFatal = func(err error) { panic(err) } // etcd would exit without a word
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	s, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, DialTimeout: await.Patience()})
	if err != nil {
		s.Close()
		t.Fatal(err)
	}
	return s, client
}

// Data survives a restart, also when the sockets have moved to another folder
// meanwhile.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	for i, want := range []string{"", "hello"} {
		s, client := start(t, dir, shortDir(t))
		got, err := client.Get(t.Context(), "/registry/x")
		if err != nil {
			t.Fatal(err)
		}
		value := ""
		if len(got.Kvs) == 1 {
			value = string(got.Kvs[0].Value)
		}
		if value != want {
			t.Errorf("start %d: got %q, want %q", i, value, want)
		}
		if _, err := client.Put(t.Context(), "/registry/x", "hello"); err != nil {
			t.Fatal(err)
		}
		client.Close()
		s.Close()
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	sockets := shortDir(t)
	if err := os.WriteFile(sockets+"/etcd.sock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, client := start(t, t.TempDir(), sockets)
	defer s.Close()
	defer client.Close()
	if _, err := client.Get(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Dir: file + "/etcd", SocketDir: shortDir(t), Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "create etcd folder") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Start(ctx, Config{Dir: t.TempDir(), SocketDir: shortDir(t), Logger: slog.New(slog.DiscardHandler)})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want nothing or Canceled", err)
	}
}

// A full member accepts writes again once there is room, and not before.
func TestRelief(t *testing.T) {
	const quota = 4 << 20
	s, client := startWith(t, Config{Dir: t.TempDir(), SocketDir: shortDir(t), Quota: quota})
	defer s.Close()
	defer client.Close()
	put := func() error {
		_, err := client.Put(t.Context(), "/registry/x", strings.Repeat("x", quota/10))
		return err
	}
	// The member refuses a write first, and raises the alarm then.
	fill := func() {
		t.Helper()
		var err error
		for err == nil {
			err = put()
		}
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatal(err)
		}
		for end := time.Now().Add(await.Patience()); !s.alarmed(etcdserverpb.AlarmType_NOSPACE); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no alarm")
			}
		}
	}
	// Pages that compaction removes count as free some commits later.
	relieved := func(before int64) {
		t.Helper()
		var err error
		for end := time.Now().Add(await.Patience()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if err = s.relieveOnce(t.Context(), before); err == nil {
				return
			}
		}
		t.Fatal(err)
	}
	fill()
	for s.relieveOnce(t.Context(), 0) == nil { // pages of the file were free
		fill()
	}
	now, err := client.Get(t.Context(), "/registry/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := put(); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("put before relief: %v", err)
	}
	relieved(now.Header.Revision)
	// Full once more, and compacted by another process.
	fill()
	if now, err = client.Get(t.Context(), "/registry/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	relieved(now.Header.Revision)
	if err := put(); err != nil {
		t.Errorf("put after relief: %v", err)
	}
	if size := s.etcd.Server.Backend().Size(); size > quota/2 {
		t.Errorf("the file still has %d bytes", size)
	}
}

func TestLogLevels(t *testing.T) {
	var out bytes.Buffer
	stopping := new(atomic.Bool)
	lg := newZapLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})), stopping, nil)
	lg.Info("chatter")
	lg.With(zap.String("member", "a")).Warn("slow", zap.Int("ms", 7))
	lg.Error("broken", zap.Error(errors.New("disk")))
	lg.Warn("simple token is not cryptographically signed")
	lg.Warn("a1 cannot campaign at term 1 since there are still pending configuration changes to apply")
	for i, message := range stopWarnings {
		lg.Warn(message, zap.Int("running", i))
	}
	stopping.Store(true)
	for _, message := range stopWarnings {
		lg.Warn(message, zap.String("when", "stopping"))
	}
	got := out.String()
	for _, ordinary := range []string{"token", "campaign", "when=stopping"} {
		if strings.Contains(got, ordinary) {
			t.Errorf("what etcd says each time got through: %q in %s", ordinary, got)
		}
	}
	if strings.Contains(got, "chatter") {
		t.Errorf("etcd's information got through: %s", got)
	}
	for _, want := range []string{"level=WARN msg=slow member=a ms=7", "level=ERROR msg=broken error=disk"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
	for i, message := range stopWarnings {
		if !strings.Contains(got, fmt.Sprintf(" running=%d\n", i)) {
			t.Errorf("this warning of a running member is not logged: %s", message)
		}
	}
}

// shortDir returns a folder with a path short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
