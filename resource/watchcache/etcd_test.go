package watchcache_test

import (
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"

	"portico/internal/testing/etcdtest"
	"portico/resource/etcd"
)

// etcdServer is an etcd that gives each client a prefix of its own.
type etcdServer struct {
	*etcdtest.Server
	clients atomic.Int64
}

func newEtcd(t testing.TB) *etcdServer { return &etcdServer{Server: etcdtest.Start(t)} }

// open returns a client with a prefix of its own.
func (s *etcdServer) open(t testing.TB) *etcd.Client {
	t.Helper()
	return openEtcd(t, "/t"+strconv.FormatInt(s.clients.Add(1), 10), s.DirectEndpoint())
}

func openEtcd(t testing.TB, prefix string, endpoints ...string) *etcd.Client {
	t.Helper()
	c, err := etcd.Open(etcd.Config{Endpoints: endpoints, Prefix: prefix, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
