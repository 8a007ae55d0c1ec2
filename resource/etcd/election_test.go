package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/internal/testing/storetest"
	"portico/resource"
)

// asSetting sets the data of a Setting.
func asSetting(t *testing.T, name, data string) resource.Mutate {
	return func(*resource.Object) (resource.Mutation, error) {
		return resource.Mutation{Object: setting(t, name, data)}, nil
	}
}

// A leader without its key, because it was stopped for longer than its lease, writes nothing
// as leader, although its context has not ended yet.
func TestLeaderIsFenced(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	store, documents := c.Store(storetest.Namespaced()), c.Documents("test")
	key := setting(t, "led", "").Key()
	writes := func(ctx context.Context, name string, after int64) map[string]error {
		o := setting(t, name, "1")
		_, created := store.Create(ctx, o.Key(), o, 0)
		_, updated := store.Update(ctx, key, asSetting(t, "led", name))
		_, kept := documents.Write(ctx, name, []byte("x"), 0)
		_, removed := documents.Write(ctx, "led", []byte(name), after)
		return map[string]error{"create": created, "update": updated, "write document": kept, "write it again": removed}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Campaign(ctx, "test", "me", func(term context.Context) {
		defer cancel()
		led := setting(t, "led", "1")
		if _, err := store.Create(term, key, led, 0); err != nil {
			t.Error(err)
		}
		if _, err := store.Create(term, key, led, 0); !apierrors.IsAlreadyExists(err) {
			t.Errorf("an existing object: %v", err)
		}
		at, err := documents.Write(term, "led", []byte("1"), 0)
		if err != nil {
			t.Error(err)
		}
		if err := documents.Delete(term, "led", at-1); !errors.Is(err, ErrDocumentChanged) {
			t.Errorf("a document that has changed: %v", err)
		}
		if _, err := c.etcd.Delete(t.Context(), electionRoot, clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
		for what, err := range writes(term, "fenced", at) {
			if !apierrors.IsServiceUnavailable(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := store.Delete(term, key, nil); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("delete: %v", err)
		}
		if term.Err() != nil {
			t.Error("its context has ended")
		}
		for what, err := range writes(t.Context(), "free", at) {
			if err != nil {
				t.Errorf("not as leader: %s: %v", what, err)
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Campaign ended with %v", err)
	}
}

func TestElection(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var mu sync.Mutex
	leading, led := 0, map[string]int{}
	elected := make(chan string, 10)
	run := func(ctx context.Context, c *Client, id string) <-chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- c.Campaign(ctx, "test", id, func(ctx context.Context) {
				mu.Lock()
				if leading++; leading > 1 {
					t.Errorf("%d lead at once", leading)
				}
				led[id]++
				mu.Unlock()
				elected <- id
				<-ctx.Done()
				mu.Lock()
				leading--
				mu.Unlock()
			})
		}()
		return ended
	}
	prefix := func(c *Config) { c.Prefix = "/election" }
	first, endFirst := context.WithCancel(t.Context())
	firstEnded := run(first, s.client(t, prefix), "one")
	if id := <-elected; id != "one" {
		t.Fatalf("%s was elected", id)
	}
	second, endSecond := context.WithCancel(t.Context())
	secondEnded := run(second, s.client(t, prefix), "two")
	endFirst()
	if err := <-firstEnded; !errors.Is(err, context.Canceled) {
		t.Errorf("Campaign ended with %v", err)
	}
	if id := <-elected; id != "two" {
		t.Errorf("%s was elected after one", id)
	}
	endSecond()
	if err := <-secondEnded; !errors.Is(err, context.Canceled) {
		t.Errorf("Campaign ended with %v", err)
	}
}

// A leader without its lease stops leading and campaigns again. The metric says that it leads.
func TestLeadershipIsLost(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	terms := make(chan context.Context)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	leading := func() float64 { return shown(t, c)["leader_election_master_status,test"] }
	go func() {
		stopped <- c.Campaign(ctx, "test", "me", func(term context.Context) {
			if v := leading(); v != 1 {
				t.Errorf("leader_election_master_status of the leader is %v", v)
			}
			terms <- term
			<-term.Done()
		})
	}()
	term := <-terms
	resp, err := c.etcd.Get(t.Context(), electionRoot, clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("the leader's key: %v, %v", resp, err)
	}
	if _, err := c.etcd.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	<-term.Done()
	<-terms
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("Campaign ended with %v", err)
	}
	if v := leading(); v != 0 {
		t.Errorf("leader_election_master_status after the end is %v", v)
	}
}

// While etcd does not answer, a leader and a candidate end soon after their context.
func TestElectionEndsWithoutEtcd(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*server){
		"silent": func(s *server) { s.Pause() },
		"cut":    func(s *server) { s.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			for range 2 {
				c := s.client(t, under("/ends"))
				go func() {
					ended <- c.Campaign(ctx, "test", "me", func(ctx context.Context) { <-ctx.Done() })
				}()
			}
			beside := s.beside(t)
			eventually(t, "both campaign", func(ctx context.Context) error {
				resp, err := beside.etcd.Get(ctx, electionRoot, clientv3.WithPrefix())
				if err == nil && len(resp.Kvs) < 2 {
					err = fmt.Errorf("%d do", len(resp.Kvs))
				}
				return err
			})
			fault(s)
			began := time.Now()
			cancel()
			for range 2 {
				select {
				case err := <-ended:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("Campaign ended with %v", err)
					}
				case <-time.After(await.Patience()):
					t.Fatal("it has not ended")
				}
			}
			await.Bar(t, "the end", time.Since(began), 2*resignTimeout+prompt)
		})
	}
}
