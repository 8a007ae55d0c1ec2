package watchcache_test

import (
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"

	"portico/resource/etcd"
)

// etcdServer is a real etcd on a unix socket, in a folder with a name short
// enough for one.
type etcdServer struct {
	t        testing.TB
	endpoint string
	etcd     *embed.Etcd
	prefixes int
}

func newEtcd(t testing.TB) *etcdServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "d")
	client, peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, "c")}, url.URL{Scheme: "unix", Path: filepath.Join(dir, "p")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.LogLevel, cfg.LogOutputs = "error", []string{os.DevNull}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd does not become ready")
	}
	return &etcdServer{t: t, endpoint: client.String(), etcd: e}
}

// open returns a client with a prefix of its own.
func (s *etcdServer) open(t testing.TB) *etcd.Client {
	t.Helper()
	s.prefixes++
	return openEtcd(t, "/t"+strconv.Itoa(s.prefixes), s.endpoint)
}

func openEtcd(t testing.TB, prefix string, endpoints ...string) *etcd.Client {
	t.Helper()
	c, err := etcd.Open(etcd.Config{Endpoints: endpoints, Prefix: prefix, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// compact forgets what was before a revision.
func (s *etcdServer) compact(rev int64) {
	s.t.Helper()
	if _, err := s.etcd.Server.Compact(s.t.Context(), &etcdserverpb.CompactionRequest{Revision: rev, Physical: true}); err != nil {
		s.t.Fatal(err)
	}
}
