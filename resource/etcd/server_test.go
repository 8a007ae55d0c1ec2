package etcd

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"portico/resource"
)

// TestMain runs more tests in parallel than there are processors: they mostly wait for etcd.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// server is a real etcd on a unix socket behind a proxy, in a folder with a short name.
type server struct {
	dir  string
	tune func(*embed.Config) // may be nil
	etcd *embed.Etcd
	*proxy
	// stores counts the prefixes given out.
	stores atomic.Int64
}

func newServer(tb testing.TB, tune ...func(*embed.Config)) *server {
	tb.Helper()
	s := prepareServer(tb)
	if len(tune) > 0 {
		s.tune = tune[0]
	}
	s.start(tb)
	return s
}

// prepareServer makes the folder and the proxy of a server.
func prepareServer(tb testing.TB) *server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		tb.Fatal(err)
	}
	s := &server{dir: dir, proxy: newProxy(tb, filepath.Join(dir, "c"), filepath.Join(dir, "e"))}
	tb.Cleanup(func() {
		s.stop()
		os.RemoveAll(dir)
	})
	return s
}

func (s *server) endpoint() string { return "unix://" + filepath.Join(s.dir, "c") }

func (s *server) start(tb testing.TB) {
	tb.Helper()
	s.launch(tb)
	s.ready(tb)
}

// launch starts etcd and does not wait for it: a member of a cluster needs the
// others.
func (s *server) launch(tb testing.TB) {
	tb.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(s.dir, "d")
	client, peer := url.URL{Scheme: "unix", Path: filepath.Join(s.dir, "e")}, url.URL{Scheme: "unix", Path: filepath.Join(s.dir, "p")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.LogLevel, cfg.LogOutputs = "error", []string{os.DevNull}
	if s.tune != nil {
		s.tune(cfg)
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	s.etcd = e
}

// ready waits until etcd serves.
func (s *server) ready(tb testing.TB) {
	tb.Helper()
	select {
	case <-s.etcd.Server.ReadyNotify():
	case <-time.After(time.Minute):
		tb.Fatal("etcd does not become ready")
	}
	s.mend(tb)
}

// stop ends etcd. The connections are cut first, for it would wait for watches
// to end by themselves.
func (s *server) stop() {
	s.cut()
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}

// newCluster starts servers that are members of one etcd.
func newCluster(tb testing.TB, n int) []*server {
	tb.Helper()
	members, peers, names := make([]*server, n), make([]url.URL, n), make([]string, n)
	for i := range members {
		members[i], peers[i] = prepareServer(tb), freePort(tb)
		names[i] = fmt.Sprintf("m%d=%s", i, peers[i].String())
	}
	for i, m := range members {
		m.tune = func(cfg *embed.Config) {
			cfg.Name, cfg.InitialCluster = fmt.Sprint("m", i), strings.Join(names, ",")
			cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peers[i]}, []url.URL{peers[i]}
			cfg.TickMs, cfg.ElectionMs = 50, 500 // members share two cores with other tests
		}
		m.launch(tb)
	}
	for _, m := range members {
		m.ready(tb)
	}
	return members
}

// freePort finds an address for a member to listen on.
func freePort(tb testing.TB) url.URL {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

// beside opens a client that does not pass the proxy.
func (s *server) beside(tb testing.TB, change ...func(*Config)) *Client {
	tb.Helper()
	return s.client(tb, append(change, func(cfg *Config) { cfg.Endpoints = []string{"unix://" + filepath.Join(s.dir, "e")} })...)
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
