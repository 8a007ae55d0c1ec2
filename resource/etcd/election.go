package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"portico/resource"
)

const (
	// leaderTTL is the duration of a leader's lease, in seconds: a leader that dies is
	// replaced in less than ten. A leader renews its lease every third of it, which writes
	// nothing.
	leaderTTL = 6
	// campaignPause is the pause between two campaigns.
	campaignPause = time.Second
	// resignTimeout bounds the revocation of the lease of a leader that ends.
	resignTimeout = 2 * time.Second
)

// electionRoot is the prefix of the keys of elections, outside the range of every feed.
const electionRoot = "portico/elections"

// Campaign calls lead whenever this process is elected leader of name, until ctx ends, and
// returns ctx's error. id identifies the leader in etcd, for people. lead's context ends
// when leadership is lost; lead must then return, and only after that does the next
// campaign begin. If lead returns earlier, the process resigns. Leadership depends on a
// lease: a process that is stopped for longer than the lease lasts may run lead beside its
// successor for a moment. Its writes with lead's context then fail with 503.
func (c *Client) Campaign(ctx context.Context, name, id string, lead func(ctx context.Context)) error {
	c.metrics.leading.WithLabelValues(name).Set(0)
	for {
		err := c.term(ctx, name, id, lead)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.log.Warn("campaign for leadership failed; retrying", "election", name, "error", err)
		}
		c.breaker.wait(ctx)
		if err := pause(ctx, campaignPause); err != nil {
			return err
		}
	}
}

// term waits until this process is elected, and leads once.
func (c *Client) term(ctx context.Context, name, id string, lead func(ctx context.Context)) error {
	session, err := c.openSession(ctx, leaderTTL)
	if err != nil {
		return err
	}
	defer session.close()

	term, endTerm := context.WithCancel(ctx)
	defer endTerm()
	defer context.AfterFunc(session.Ctx(), endTerm)()

	election := concurrency.NewElection(session.Session, electionRoot+c.prefix+strings.Trim(name, "/"))
	// When term ends, Campaign withdraws with the context of the session: that ends as well if
	// etcd does not answer.
	stop := context.AfterFunc(term, func() { time.AfterFunc(resignTimeout, session.end) })
	err = election.Campaign(term, id)
	stop()
	if err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	c.log.Info("elected leader", "election", name, "id", id)
	c.metrics.leading.WithLabelValues(name).Set(1)
	defer c.metrics.leading.WithLabelValues(name).Set(0)
	lead(context.WithValue(term, fenceKey{}, &fence{
		key: []byte(election.Key()), rev: election.Rev(),
		broken: resource.Unavailable("the write was not carried out: the process is no longer the elected leader", retryAfter),
	}))
	c.log.Info("leadership ended", "election", name, "id", id)
	return nil
}

// session keeps a lease until it is closed, or etcd does not renew the lease in time.
type session struct {
	*concurrency.Session
	client *Client
	live   context.Context // of all requests of the session
	end    context.CancelFunc
}

// openSession grants a lease of ttl seconds and keeps it. The session outlives ctx by the time that its
// close takes; close must be called.
func (c *Client) openSession(ctx context.Context, ttl int64) (*session, error) {
	grant, err := c.grantLease(ctx, ttl)
	if err != nil {
		return nil, fmt.Errorf("grant lease: %w", err)
	}
	s := &session{client: c}
	s.live, s.end = context.WithCancel(context.WithoutCancel(ctx))
	member := clientv3.NewCtxClient(s.live)
	member.KV, member.Lease, member.Watcher = c.etcd.KV, c.etcd.Lease, c.etcd.Watcher
	s.Session, err = concurrency.NewSession(member, concurrency.WithLease(grant), concurrency.WithContext(s.live))
	if err != nil {
		c.revoke(s.live, grant)
		s.end()
		return nil, fmt.Errorf("keep lease: %w", err)
	}
	return s, nil
}

// close revokes the lease, and so removes what depends on it at once.
func (s *session) close() {
	s.Orphan()
	s.client.revoke(s.live, s.Lease())
	s.end()
}

// revoke revokes a lease, or gives up after resignTimeout.
func (c *Client) revoke(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, resignTimeout)
	defer cancel()
	if _, err := c.etcd.Revoke(ctx, lease); err != nil {
		c.log.Debug("lease was not revoked; it expires by itself", "error", err)
	}
}
