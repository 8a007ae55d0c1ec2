package history_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"portico/internal/testing/etcdtest"
	"portico/internal/testing/history"
	"portico/resource"
	"portico/resource/etcd"
)

// prefix is that of all clients.
const prefix = "/registry/"

// etcdServer is a real etcd with a journal of its events. Each client has a relay.
type etcdServer struct {
	*etcdtest.Server
	relays []*etcdtest.Relay
	client *clientv3.Client
	*history.Journal
}

func newEtcd(t *testing.T) *etcdServer {
	s := &etcdServer{Server: etcdtest.Start(t), Journal: history.NewJournal()}
	s.relays = append(s.relays, s.Relay)
	var err error
	if s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.client.Close() })
	s.follow(t)
	return s
}

// interrupt cuts the connections of all clients for 50 ms.
func (s *etcdServer) interrupt(context.Context) error {
	for _, r := range s.relays {
		r.Cut()
		defer r.Mend()
	}
	time.Sleep(50 * time.Millisecond)
	return nil
}

// isolate cuts the connections of one client until others have written, and compacts the
// history that it lacks.
func (s *etcdServer) isolate(r *etcdtest.Relay) func(context.Context) error {
	return func(ctx context.Context) error {
		r.Cut()
		defer r.Mend()
		wait, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, _ = s.Read(wait, s.Position()+40) // if they write less, that is all
		return s.compact(ctx, s.Position())
	}
}

func (s *etcdServer) restart(ctx context.Context) error {
	s.Stop()
	return s.Start(ctx)
}

// restartAndCompact compacts the history that clients lack when they reconnect late.
func (s *etcdServer) restartAndCompact(ctx context.Context) error {
	if err := s.restart(ctx); err != nil {
		return err
	}
	for range 30 {
		if err := s.compact(ctx, s.Position()); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// compact compacts up to a revision that the journal has.
func (s *etcdServer) compact(ctx context.Context, rev int64) error {
	_, err := s.client.Compact(ctx, min(rev, s.Position()))
	if err != nil && !strings.Contains(err.Error(), "compacted") {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// follow writes the journal by a watch from the first revision, which etcd's client resumes
// after restarts.
func (s *etcdServer) follow(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	responses := s.client.Watch(ctx, prefix+history.Info().RangePath(""), clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithCreatedNotify())
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
				c := history.Commit{Revision: e.Kv.ModRevision, Key: history.KeyOf(strings.TrimPrefix(string(e.Kv.Key), prefix))}
				if e.Type == clientv3.EventTypePut {
					o, err := resource.Parse(e.Kv.Value)
					if err != nil {
						t.Errorf("journal: %v", err)
						continue
					}
					c.Object = o.WithRevision(c.Revision)
				}
				s.Add(c.Revision, c)
			}
			if resp.IsProgressNotify() {
				s.Add(resp.Header.Revision)
			}
		}
	})
}

// log is history.System.Journal.
func (s *etcdServer) log(ctx context.Context, upTo int64) ([]history.Commit, error) {
	for s.Position() < upTo && ctx.Err() == nil {
		// Writes of other keys increase the revision, too.
		if err := s.client.RequestProgress(ctx); err != nil {
			return nil, err
		}
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := s.Read(wait, upTo)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
	}
	return s.Read(ctx, upTo)
}

// open returns a client with a relay of its own.
func (s *etcdServer) open(t *testing.T) (*etcd.Client, *etcdtest.Relay) {
	r := s.NewRelay(t)
	s.relays = append(s.relays, r)
	c, err := etcd.Open(etcd.Config{Endpoints: []string{r.Endpoint()}, Prefix: prefix, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c, r
}

// direct is the store of etcd, which has no watches, with those of a cache.
type direct struct {
	resource.Store
	cache resource.Store
}

func (d direct) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	return d.cache.Watch(ctx, opts)
}

// door is the store of etcd, watched through a cache.
func (s *etcdServer) door(t *testing.T, watches *cached) history.Door {
	client, _ := s.open(t)
	store := client.Store(history.Info())
	return history.Door{Name: "etcd", Store: func() resource.Store { return direct{store, *watches.store.Load()} }}
}

// system returns a System without doors and without restarts of caches.
func (s *etcdServer) system() history.System {
	return history.System{
		Compact:  s.compact,
		Restarts: []func(context.Context) error{s.interrupt, s.restart, s.restartAndCompact},
		Journal:  s.log,
	}
}
