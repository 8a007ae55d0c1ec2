package etcd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestLeasesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := map[clientv3.LeaseID]time.Time{}
		l := newLeases(t.Context(), func(_ context.Context, seconds int64) (clientv3.LeaseID, error) {
			id := clientv3.LeaseID(len(ends) + 1)
			ends[id] = time.Now().Add(time.Duration(seconds) * time.Second)
			return id, nil
		})
		take := func(ttl time.Duration) clientv3.LeaseID {
			id, err := l.take(t.Context(), ttl)
			if err != nil {
				t.Fatal(err)
			}
			left := time.Until(ends[id])
			if left < ttl || left > ttl+time.Second+min(ttl/20, leaseWindow) {
				t.Fatalf("lease for %s lasts %s", ttl, left)
			}
			return id
		}
		first := take(time.Hour)
		time.Sleep(59 * time.Second)
		if take(time.Hour) != first {
			t.Error("a lease is not shared within a minute")
		}
		if take(10*time.Minute) == first {
			t.Error("a lease is shared by different TTLs")
		}
		time.Sleep(2 * time.Second)
		second := take(time.Hour)
		if second == first {
			t.Error("a lease is shared beyond a minute")
		}
		for range leaseKeys - 1 {
			if take(time.Hour) != second {
				t.Fatal("a lease is given up early")
			}
		}
		if take(time.Hour) == second {
			t.Errorf("a lease takes more than %d keys", leaseKeys)
		}
		if first, second := take(time.Second), take(time.Second); first == second {
			t.Error("leases of a second are shared")
		}
	})
}
