package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leases are shared, because granting one costs etcd as much as a write and
// keeping one costs memory: a lease takes the keys of one TTL for 5 % of it,
// at most leaseWindow, and at most leaseKeys of them. It is granted with that
// much extra time, so no key is removed early.
const (
	leaseWindow = time.Minute
	leaseKeys   = 1000
)

// leases hands out leases for keys with a TTL.
type leases struct {
	grant func(ctx context.Context, seconds int64) (clientv3.LeaseID, error)
	// turn is held by the one who looks for a lease or grants it. It is a
	// channel so that waiting can end with the caller's context.
	turn chan struct{}
	open map[int64]*openLease // by TTL in seconds
}

type openLease struct {
	id    clientv3.LeaseID
	until time.Time // takes keys until then
	keys  int
}

func newLeases(grant func(context.Context, int64) (clientv3.LeaseID, error)) *leases {
	return &leases{grant: grant, turn: make(chan struct{}, 1), open: map[int64]*openLease{}}
}

func (c *Client) grantLease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.etcd.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}

// take returns a lease that lasts at least ttl from now, which is rounded up
// to seconds. Errors are those of etcd's client.
func (l *leases) take(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	now := time.Now()
	for seconds, lease := range l.open {
		if now.After(lease.until) || lease.keys >= leaseKeys {
			delete(l.open, seconds)
		}
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	if lease := l.open[seconds]; lease != nil {
		lease.keys++
		return lease.id, nil
	}
	window := int64(min(ttl/20, leaseWindow) / time.Second)
	id, err := l.grant(ctx, seconds+window)
	if err != nil {
		return 0, err
	}
	if window > 0 {
		// The time is counted from before the grant began: etcd's clock for
		// this lease started later.
		l.open[seconds] = &openLease{id: id, until: now.Add(time.Duration(window) * time.Second), keys: 1}
	}
	return id, nil
}
