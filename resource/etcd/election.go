package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	// leaderTTL is how long a leader that dies keeps others waiting: with what
	// etcd takes to notice, and a campaign, under ten seconds. A leader renews
	// its lease three times in it, which writes nothing.
	leaderTTL = 6 // seconds
	// campaignPause keeps a failing campaign from spinning.
	campaignPause = time.Second
	// resignTimeout bounds the farewell of a leader that ends.
	resignTimeout = 2 * time.Second
)

// electionRoot holds the elections' keys, outside of every feed's range.
const electionRoot = "portico/elections"

// Campaign runs lead whenever this process is the elected leader of name, until ctx ends,
// and returns ctx's error. id names the leader in etcd, for people. lead's context ends
// when leadership is lost; lead must return then, and the next campaign begins after it
// has. Leadership depends on a lease: a process that stops for longer than its duration
// may for a moment run lead beside its successor. Writes with lead's context fail then
// with a 503 (fence.go). A lead that returns by itself resigns.
func (c *Client) Campaign(ctx context.Context, name, id string, lead func(ctx context.Context)) error {
	for {
		err := c.term(ctx, name, id, lead)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.log.Warn("campaign for leadership failed; it is tried again", "election", name, "error", err)
		}
		c.breaker.wait(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(campaignPause):
		}
	}
}

// term waits to be elected and leads once.
func (c *Client) term(ctx context.Context, name, id string, lead func(ctx context.Context)) error {
	grant, err := c.grantLease(ctx, leaderTTL)
	if err != nil {
		return fmt.Errorf("grant lease: %w", err)
	}
	// The session must outlive ctx by the time it takes to resign.
	live, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer c.resign(live, grant)
	session, err := concurrency.NewSession(c.etcd, concurrency.WithLease(grant), concurrency.WithContext(live))
	if err != nil {
		return fmt.Errorf("keep lease: %w", err)
	}
	defer session.Orphan()

	term, endTerm := context.WithCancel(ctx)
	defer endTerm()
	defer context.AfterFunc(session.Ctx(), endTerm)()

	election := concurrency.NewElection(session, electionRoot+c.prefix+strings.Trim(name, "/"))
	if err := election.Campaign(term, id); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	c.log.Info("elected leader", "election", name, "id", id)
	lead(fenced(term, &fence{key: []byte(election.Key()), rev: election.Rev()}))
	c.log.Info("leadership ended", "election", name, "id", id)
	return nil
}

// resign revokes the lease, which removes the leader's key and lets the next
// one in at once.
func (c *Client) resign(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, resignTimeout)
	defer cancel()
	if _, err := c.etcd.Revoke(ctx, lease); err != nil {
		c.log.Debug("lease was not revoked; it expires by itself", "error", err)
	}
}
