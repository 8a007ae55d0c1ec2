package etcd

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/internal/testing/etcdtest"
	"portico/internal/testing/storetest"
	"portico/resource"
)

// plusOne adds one to the number of a setting.
func plusOne(t *testing.T, name string) resource.Mutate {
	return func(cur *resource.Object) (resource.Mutation, error) {
		return resource.Mutation{Object: setting(t, name, strconv.Itoa(number(t, cur)+1))}, nil
	}
}

// number reads an object's data.
func number(t *testing.T, o *resource.Object) int {
	t.Helper()
	_, rest, _ := strings.Cut(string(o.Data), `"v":"`)
	digits, _, _ := strings.Cut(rest, `"`)
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("%s: %v", o.Data, err)
	}
	return n
}

// outcome returns the code of an error and whether it has a Retry-After.
func outcome(err error) (code int32, retry bool) {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return resource.AsStatus(err).Code, seconds > 0
}

// eventually calls f until it succeeds.
func eventually(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// The answer to a write is lost, and etcd stays away: the write may have been executed. It is no
// success, and its error has no Retry-After.
func TestWriteWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lose func(*server)
		cut  bool // once the write has been carried out
	}{
		"answers are lost":         {lose: func(s *server) { s.Responses.Shut() }},
		"requests are held back":   {lose: func(s *server) { s.Requests.Shut() }},
		"the connection is broken": {lose: func(s *server) { s.Responses.Shut() }, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			made := mustCreate(t, s.client(t, under("/one")).Store(storetest.Namespaced()), "x")
			c := s.client(t, under("/one"))
			if err := c.Healthy(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.timeout = 300 * time.Millisecond; tt.cut {
				c.timeout = 2 * time.Second
			}
			tt.lose(s)
			var losing sync.WaitGroup
			if tt.cut {
				losing.Go(func() {
					for s.Etcd.Server.KV().Rev() == made.Revision {
						time.Sleep(time.Millisecond)
					}
					s.Cut()
				})
			}
			_, err := c.Store(storetest.Namespaced()).(resource.Hinted).UpdateFrom(t.Context(), keyX, made, plusOne(t, "x"))
			if code, retry := outcome(err); code != http.StatusGatewayTimeout || retry || !strings.Contains(err.Error(), "not known") {
				t.Errorf("update: %v (retry %t)", err, retry)
			}
			losing.Wait()
			s.Resume()
			s.Mend()
			got, err := s.client(t, under("/one")).Store(storetest.Namespaced()).Update(t.Context(), keyX, plusOne(t, "x"))
			if err != nil {
				t.Fatal(err)
			}
			if n := number(t, got); n != 3 && (tt.cut || n != 2) {
				t.Errorf("an increment of unknown outcome and one that succeeded led from 1 to %d", n)
			}
		})
	}
}

// A write without a connection was certainly not executed: its error has Retry-After.
func TestUnreachableEtcd(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t)
	store := c.Store(storetest.Namespaced())
	mustCreate(t, store, "x")
	c.timeout = 300 * time.Millisecond
	s.Cut()
	// The first call may find the connection before it was seen to be broken; it is a read.
	_, getErr := store.Get(t.Context(), keyX, resource.At{})
	obj := setting(t, "y", "1")
	_, createErr := store.Create(t.Context(), obj.Key(), obj, 0)
	_, leaseErr := store.Create(t.Context(), obj.Key(), obj, time.Hour)
	_, updateErr := store.Update(t.Context(), keyX, plusOne(t, "x"))
	_, listErr := store.List(t.Context(), resource.ListOptions{})
	for what, err := range map[string]error{"create": createErr, "create with a TTL": leaseErr, "update": updateErr, "get": getErr, "list": listErr} {
		code, retry := outcome(err)
		if code == http.StatusGatewayTimeout && what == "get" {
			code = http.StatusServiceUnavailable // its time ended between two attempts
		}
		if code != http.StatusServiceUnavailable || !retry {
			t.Errorf("%s: %v (retry %t), want 503 with Retry-After", what, err, retry)
		}
	}
	c.timeout = callTimeout
	s.Mend()
	eventually(t, "create once etcd can be reached", func(ctx context.Context) error {
		_, err := store.Create(ctx, obj.Key(), obj, time.Hour)
		return err
	})
}

// With a majority of members everything is served, without one every call ends with a Status,
// and with one again everything works.
func TestMajority(t *testing.T) {
	t.Parallel()
	members, c := newCluster(t)
	store := c.Store(storetest.Namespaced())
	mustCreate(t, store, "x")
	c.timeout = 5 * time.Second
	replica := follow(t, c.Feed())

	write := func(name string) (last *resource.Object) {
		eventually(t, "create "+name, func(ctx context.Context) (err error) {
			obj := setting(t, name, "1")
			last, err = store.Create(ctx, obj.Key(), obj, 0)
			if apierrors.IsAlreadyExists(err) {
				last, err = store.Get(ctx, obj.Key(), resource.At{})
			}
			return err
		})
		return last
	}
	leader := slices.IndexFunc(members, func(m *etcdtest.Server) bool { return m.Etcd.Server.Leader() == m.Etcd.Server.MemberID() })
	first, second := members[leader], members[(leader+1)%3]
	first.Stop()
	waitFor(t, replica, storetest.At(write("without-the-leader").Revision))

	second.Stop()
	obj := setting(t, "alone", "1")
	_, createErr := store.Create(t.Context(), obj.Key(), obj, 0)
	_, getErr := store.Get(t.Context(), keyX, resource.At{})
	for what, err := range map[string]error{"create": createErr, "get": getErr} {
		if code, retry := outcome(err); code != 503 && code != 504 || what == "create" && code == 504 && retry {
			t.Errorf("%s without a majority: %v (retry %t)", what, err, retry)
		}
	}
	if err := etcdtest.StartAll(t.Context(), first, second); err != nil {
		t.Fatal(err)
	}
	checkResumed(t, replica, store, write("all-again").Revision)
}

// A full etcd rejects writes and answers reads and deletions. When there is room again, it
// accepts writes.
func TestFullEtcd(t *testing.T) {
	t.Parallel()
	const quota = 2 << 20
	s := newServer(t, func(cfg *embed.Config) { cfg.QuotaBackendBytes = quota })
	c := s.client(t)
	store := c.Store(storetest.Namespaced())
	replica := follow(t, c.Feed())
	mustCreate(t, store, "x")
	var full error
	for i := 0; full == nil; i++ {
		obj := setting(t, fmt.Sprint("big", i%2), strconv.Itoa(i)+strings.Repeat("x", quota/10))
		_, full = store.Update(t.Context(), obj.Key(), func(*resource.Object) (resource.Mutation, error) {
			return resource.Mutation{Object: obj}, nil
		})
	}
	obj := setting(t, "event", "1")
	_, leaseErr := store.Create(t.Context(), obj.Key(), obj, time.Hour)
	for _, err := range []error{full, leaseErr} {
		if code, retry := outcome(err); code != http.StatusInsufficientStorage || retry || !strings.Contains(err.Error(), "full") {
			t.Errorf("write to a full etcd: %d %v (retry %t)", code, err, retry)
		}
	}
	if _, err := store.Get(t.Context(), keyX, resource.At{}); err != nil {
		t.Errorf("get: %v", err)
	}
	gone, err := store.Delete(t.Context(), keyX, nil)
	if err != nil {
		t.Fatalf("delete: %v", err)
	}

	if _, err := c.etcd.Compact(t.Context(), gone.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Defragment(t.Context(), s.Endpoint()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	last, err := store.Create(t.Context(), obj.Key(), obj, time.Hour)
	if err != nil {
		t.Fatalf("create once there is room: %v", err)
	}
	waitFor(t, replica, storetest.At(last.Revision))
	replica.Compare(t.Context(), t, store)
}

// A shared lease that was revoked is replaced.
func TestSharedLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	store := c.Store(storetest.Namespaced())
	first := setting(t, "first", "1")
	if _, err := store.Create(t.Context(), first.Key(), first, time.Hour); err != nil {
		t.Fatal(err)
	}
	lease, err := c.leases.take(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), first.Key(), resource.At{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the key survived its lease: %v", err)
	}
	for _, name := range []string{"first", "second"} {
		obj := setting(t, name, "1")
		if _, err := store.Create(t.Context(), obj.Key(), obj, time.Hour); err != nil {
			t.Errorf("create %s: %v", name, err)
		}
	}
	if again, err := c.leases.take(t.Context(), time.Hour); err != nil || again == lease {
		t.Errorf("lease %x is still shared (%v)", again, err)
	}
}
