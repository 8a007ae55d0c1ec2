package etcd

import (
	"context"
	"maps"
	"sync"
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
	ctx   context.Context // bounds the grants; they outlive single callers
	full  func(keys int)  // hears how many keys a lease took that takes no more

	mu   sync.Mutex
	open map[int64]*openLease // by TTL in seconds
}

type openLease struct {
	until time.Time // takes keys until then
	keys  int

	granted chan struct{} // closed when what follows is known
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

// take returns a lease that lasts at least ttl from now, rounded up to seconds. Concurrent
// callers share one that is being granted. Errors are those of etcd's client.
func (l *leases) take(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	lease := l.join(ttl)
	select {
	case <-lease.granted:
		return lease.id, lease.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// join counts a key in with a lease, which is granted if there is none to share.
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
		// The time is counted from before the grant begins: etcd's clock for
		// this lease starts later.
		lease = &openLease{until: now.Add(time.Duration(window) * time.Second), granted: make(chan struct{})}
		if window > 0 {
			l.open[seconds] = lease
		}
		go l.fill(lease, seconds+window)
	}
	lease.keys++
	return lease
}

// fill grants a lease. One that could not be granted is not shared further.
func (l *leases) fill(lease *openLease, seconds int64) {
	lease.id, lease.err = l.grant(l.ctx, seconds)
	if lease.err != nil {
		l.drop(func(other *openLease) bool { return other == lease })
	}
	close(lease.granted)
}

// forget stops sharing a lease that etcd does not know any more.
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
