package etcd

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leases are shared, because granting one costs etcd as much as a write and keeping one
// costs memory. A lease accepts keys with one TTL for 5 % of the TTL, at most leaseWindow,
// and at most leaseKeys of them. Its TTL is longer by that time, so no key is removed early.
const (
	leaseWindow = time.Minute
	leaseKeys   = 1000
)

// leases are the shared leases of keys with a TTL. Safe for concurrent use.
type leases struct {
	grant func(ctx context.Context, seconds int64) (clientv3.LeaseID, error)
	ctx   context.Context // of the grants, which outlive single callers
	full  func(keys int)  // called with the number of keys of a lease that accepts no more

	mu   sync.Mutex
	open map[int64]*openLease // by TTL in seconds
}

type openLease struct {
	until time.Time // accepts keys until then
	keys  int

	granted chan struct{} // closed when id and err are set
	id      clientv3.LeaseID
	err     error
}

func newLeases(ctx context.Context, grant func(context.Context, int64) (clientv3.LeaseID, error)) *leases {
	return &leases{ctx: ctx, grant: grant, full: func(int) {}, open: map[int64]*openLease{}}
}

func (c *Client) grantLease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.etcd.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}

// take returns a lease that lasts at least ttl from now, rounded up to seconds. Errors are
// those of etcd's client.
func (l *leases) take(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	lease := l.join(ttl)
	select {
	case <-lease.granted:
		return lease.id, lease.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// join adds a key to a lease, which is granted if there is none to share.
func (l *leases) join(ttl time.Duration) *openLease {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	window := int64(min(ttl/20, leaseWindow) / time.Second)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for seconds, lease := range l.open {
		if now.After(lease.until) || lease.keys >= leaseKeys {
			delete(l.open, seconds)
			l.full(lease.keys)
		}
	}
	lease := l.open[seconds]
	if lease == nil {
		// The time counts from before the grant: etcd's clock of the lease starts later.
		lease = &openLease{until: now.Add(time.Duration(window) * time.Second), granted: make(chan struct{})}
		if window > 0 {
			l.open[seconds] = lease
		}
		go l.fill(lease, seconds+window)
	}
	lease.keys++
	return lease
}

// fill grants a lease, and stops sharing it if that fails.
func (l *leases) fill(lease *openLease, seconds int64) {
	lease.id, lease.err = l.grant(l.ctx, seconds)
	if lease.err != nil {
		l.drop(func(other *openLease) bool { return other == lease })
	}
	close(lease.granted)
}

// forget stops sharing a lease that etcd no longer has.
func (l *leases) forget(id clientv3.LeaseID) {
	l.drop(func(lease *openLease) bool {
		select {
		case <-lease.granted:
			return lease.id == id
		default:
			return false
		}
	})
}

func (l *leases) drop(gone func(*openLease) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.open, func(_ int64, lease *openLease) bool { return gone(lease) })
}
