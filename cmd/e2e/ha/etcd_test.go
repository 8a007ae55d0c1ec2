package ha

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"portico/internal/testing/history"
	"portico/resource"
)

// etcdClient is a client of all members as the user root, without relays.
type etcdClient struct {
	*clientv3.Client
	tls *tls.Config
}

func poolOf(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(pem) {
		err = errors.New("no certificate in " + file)
	}
	return pool, err
}

// connect makes the client, which leaves a member within two seconds after it falls silent.
func (in *installation) connect(t *testing.T) *etcdClient {
	t.Helper()
	config, err := in.clientTLS()
	if err != nil {
		t.Fatal(err)
	}
	var endpoints []string
	for _, name := range members {
		endpoints = append(endpoints, "https://"+listens(in.address(name)))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: config, Logger: zap.NewNop(), DialTimeout: time.Second, DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &etcdClient{client, config}
}

// leads reports whether a member is the leader.
func (in *installation) leads(ctx context.Context, member string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := in.etcd.Status(ctx, "https://"+listens(in.address(member)))
	return err == nil && status.Leader == status.Header.MemberId
}

// journal records the commits of history.Info from a revision on.
func (in *installation) journal(t *testing.T, from int64) func(context.Context, int64) ([]history.Commit, error) {
	j := history.NewJournal()
	path := "/registry/" + history.Info().RangePath("")
	ctx, cancel := context.WithCancel(context.Background())
	responses := in.etcd.Watch(ctx, path, clientv3.WithPrefix(), clientv3.WithRev(from+1), clientv3.WithCreatedNotify())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		for resp := range responses {
			if err := resp.Err(); err != nil && ctx.Err() == nil {
				t.Errorf("journal: %v", err)
			}
			for _, e := range resp.Events {
				c := history.Commit{Revision: e.Kv.ModRevision, Key: history.KeyOf(strings.TrimPrefix(string(e.Kv.Key), "/registry/"))}
				if e.Type == clientv3.EventTypePut {
					o, err := resource.Parse(e.Kv.Value)
					if err != nil {
						t.Errorf("journal: %v", err)
						continue
					}
					c.Object = o.WithRevision(c.Revision)
				}
				j.Add(c.Revision, c)
			}
			if resp.IsProgressNotify() {
				j.Add(resp.Header.Revision)
			}
		}
	})
	return func(ctx context.Context, upTo int64) ([]history.Commit, error) {
		for j.Position() < upTo && ctx.Err() == nil {
			// Writes of other keys increase the revision, too.
			if err := in.etcd.RequestProgress(ctx); err != nil {
				return nil, err
			}
			wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			_, err := j.Read(wait, upTo)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
		}
		commits, err := j.Read(ctx, upTo)
		return slices.Clone(commits), err
	}
}
