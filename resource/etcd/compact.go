package etcd

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// compactKey coordinates the compactors of one etcd. kube-apiserver uses the same key
	// in the same way, so both can share an etcd.
	compactKey = "compact_rev_key"
	// compactEvery is the time between compactions. The compacted revision is one round
	// old, so between one and two rounds of history are kept.
	compactEvery = 5 * time.Minute
	// compactTimeout bounds a round, which is much work for etcd.
	compactTimeout = 30 * time.Second
)

// claimedKey is below the key of an election, so that a Report names the process that claimed the
// last round beside the leaders. It is for people only: there is no election of a compactor.
const claimedKey = "compaction/claimed"

// compaction is the state of one compactor between rounds.
type compaction struct {
	// round is the version of compactKey when it was last seen.
	round int64
	// rev was the store's revision then; 0 before the first round.
	rev int64
}

// Compact removes old history from etcd every 5 minutes until ctx ends, and returns ctx's
// error. Any number of processes may run it on one etcd: in each round one of them
// compacts. At least 5 minutes of history are kept. id identifies the process for people.
//
// The key's version counts the rounds. A process that finds the version of its last round
// increments it and compacts to the revision of that round; one that finds another version
// remembers it and waits for the next round.
func (c *Client) Compact(ctx context.Context, id string) error {
	tick := time.NewTicker(compactEvery)
	defer tick.Stop()
	var state compaction
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		next, compacted, err := c.compactRound(ctx, id, state)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("compaction of etcd failed; the next round retries", "error", err)
		}
		if compacted > 0 {
			c.log.Debug("compacted etcd", "revision", compacted)
		}
		state = next
	}
}

// compactRound runs one round. compacted is the revision compacted to; 0 if another process
// compacts, and in the first round.
func (c *Client) compactRound(ctx context.Context, id string, state compaction) (next compaction, compacted int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	next, mine, err := c.claimRound(ctx, state)
	if err != nil || !mine {
		return next, 0, err
	}
	c.announce(ctx, id)
	if state.rev == 0 {
		return next, 0, nil
	}
	if _, err := c.etcd.Compact(ctx, state.rev); err != nil && !isCompacted(err) {
		return next, 0, err
	}
	return next, state.rev, nil
}

// announce names this process as the one that claimed the last round, for two rounds. A full etcd
// does not store it.
func (c *Client) announce(ctx context.Context, id string) {
	lease, err := c.grantLease(ctx, int64(2*compactEvery/time.Second))
	if err == nil {
		_, err = c.etcd.Put(ctx, electionRoot+c.prefix+claimedKey, id, clientv3.WithLease(lease))
	}
	if err != nil {
		c.log.Debug("the compactor of etcd is not announced", "error", err)
	}
}

// claimRound reports whether this process compacts in the round.
func (c *Client) claimRound(ctx context.Context, state compaction) (next compaction, mine bool, err error) {
	resp, err := c.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(compactKey), "=", state.round)).
		Then(clientv3.OpPut(compactKey, strconv.FormatInt(state.rev, 10))).
		Else(clientv3.OpGet(compactKey)).
		Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		// A full etcd cannot store the key. Every process compacts then, which is harmless:
		// the revision is a round old.
		rev, err := c.readRevision(ctx)
		if err != nil {
			return state, false, err
		}
		return compaction{round: state.round, rev: rev}, true, nil
	}
	if err != nil {
		return state, false, err
	}
	next = compaction{round: state.round + 1, rev: resp.Header.Revision}
	if resp.Succeeded {
		return next, true, nil
	}
	next.round = 0 // the key was removed
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		next.round = kvs[0].Version
	}
	return next, false, nil
}
