package historytest_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/historytest"
)

// etcdServer is a real etcd on unix sockets, and everything that it was told.
type etcdServer struct {
	dir    string
	prefix string
	etcd   *embed.Etcd
	relay  *relay // between it and everybody
	client *clientv3.Client
	*journal
}

func newEtcd(t *testing.T) *etcdServer {
	dir, err := os.MkdirTemp("", "h") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	s := &etcdServer{dir: dir, prefix: "/registry/", journal: newJournal()}
	if s.relay, err = newRelay(filepath.Join(dir, "c"), s.socket()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop()
		s.relay.Close()
		os.RemoveAll(dir)
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint()}, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.client.Close() })
	s.follow(t)
	return s
}

func (s *etcdServer) socket() string   { return filepath.Join(s.dir, "e") }
func (s *etcdServer) endpoint() string { return "unix://" + filepath.Join(s.dir, "c") }

func (s *etcdServer) start(ctx context.Context) error {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(s.dir, "d")
	client, peer := url.URL{Scheme: "unix", Path: s.socket()}, url.URL{Scheme: "unix", Path: filepath.Join(s.dir, "p")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true // the process does not end, so nothing is lost
	cfg.LogLevel, cfg.LogOutputs = "error", []string{os.DevNull}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	s.etcd = e
	select {
	case <-e.Server.ReadyNotify():
		s.relay.set(false)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends it in the midst of what it does.
func (s *etcdServer) stop() {
	s.relay.set(true)
	s.etcd.Close()
}

// partition cuts everybody off for a moment.
func (s *etcdServer) partition(ctx context.Context) error {
	s.relay.set(true)
	defer s.relay.set(false)
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
	return nil
}

func (s *etcdServer) restart(ctx context.Context) error {
	s.stop()
	return s.start(ctx)
}

// restartAndCompact has those who come back late find that the history which
// they lack is gone.
func (s *etcdServer) restartAndCompact(ctx context.Context) error {
	if err := s.restart(ctx); err != nil {
		return err
	}
	for range 100 {
		if err := s.compact(ctx, s.position()); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// compact never goes beyond what the journal has.
func (s *etcdServer) compact(ctx context.Context, rev int64) error {
	_, err := s.client.Compact(ctx, min(rev, s.position()))
	if err != nil && !strings.Contains(err.Error(), "compacted") {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// follow writes the journal, by a watch of its own from the beginning on, which
// etcd's client keeps up over restarts.
func (s *etcdServer) follow(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	prefix := s.prefix + historytest.Info().RangePath("")
	responses := s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithCreatedNotify())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	wg.Go(func() {
		for resp := range responses {
			if err := resp.Err(); err != nil && ctx.Err() == nil {
				t.Errorf("journal: %v", err)
			}
			for _, e := range resp.Events {
				c := historytest.Commit{Revision: e.Kv.ModRevision, Key: keyOf(strings.TrimPrefix(string(e.Kv.Key), s.prefix))}
				if e.Type == clientv3.EventTypePut {
					o, err := resource.Parse(e.Kv.Value)
					if err != nil {
						t.Errorf("journal: %v", err)
						continue
					}
					c.Object = o.WithRevision(c.Revision)
				}
				s.add(c.Revision, c)
			}
			if resp.IsProgressNotify() {
				s.add(resp.Header.Revision)
			}
		}
	})
}

// log is historytest.System.Journal.
func (s *etcdServer) log(ctx context.Context, upTo int64) ([]historytest.Commit, error) {
	for s.position() < upTo && ctx.Err() == nil {
		// What is no record moves the revision on, too.
		if err := s.client.RequestProgress(ctx); err != nil {
			return nil, err
		}
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := s.read(wait, upTo)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
	}
	return s.read(ctx, upTo)
}

// open makes a client as one process has it.
func (s *etcdServer) open(t *testing.T) *etcd.Client {
	c, err := etcd.Open(etcd.Config{Endpoints: []string{s.endpoint()}, Prefix: s.prefix, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// system is a System of which the doors and restarts of caches are missing.
func (s *etcdServer) system() historytest.System {
	return historytest.System{
		Compact:  s.compact,
		Restarts: []func(context.Context) error{s.partition, s.restart, s.restartAndCompact},
		Journal:  s.log,
	}
}

// overEtcd is the store of etcd alone.
func overEtcd(t *testing.T) historytest.System {
	s := newEtcd(t)
	store, sys := s.open(t).Store(historytest.Info()), s.system()
	sys.Doors = []historytest.Door{{Name: "etcd", Store: func() resource.Store { return store }}}
	return sys
}
