package etcd

import (
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"portico/resource"
)

// server is a real etcd on a unix socket, in a folder with a name short enough
// for one.
type server struct {
	dir  string
	etcd *embed.Etcd
	// stores counts the prefixes given out.
	stores atomic.Int64
}

func newServer(tb testing.TB) *server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		tb.Fatal(err)
	}
	s := &server{dir: dir}
	tb.Cleanup(func() {
		s.stop()
		os.RemoveAll(dir)
	})
	s.start(tb)
	return s
}

func (s *server) endpoint() string { return "unix://" + filepath.Join(s.dir, "c") }

func (s *server) start(tb testing.TB) {
	tb.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(s.dir, "d")
	client, peer := url.URL{Scheme: "unix", Path: filepath.Join(s.dir, "c")}, url.URL{Scheme: "unix", Path: filepath.Join(s.dir, "p")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.LogLevel, cfg.LogOutputs = "error", []string{os.DevNull}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		tb.Fatal("etcd does not become ready")
	}
	s.etcd = e
}

func (s *server) stop() {
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}

// client opens a client with a prefix of its own.
func (s *server) client(tb testing.TB, change ...func(*Config)) *Client {
	tb.Helper()
	cfg := Config{
		Endpoints: []string{s.endpoint()},
		Prefix:    "/t" + strconv.FormatInt(s.stores.Add(1), 10),
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return c
}

func (s *server) open(t *testing.T, info *resource.Info) resource.Store {
	return s.client(t).Store(info)
}
