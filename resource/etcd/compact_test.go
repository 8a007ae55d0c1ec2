package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// Two processes compact one etcd, in rounds that the test starts: in each, one of them
// compacts to the revision of the round before.
func TestCompactors(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const processes = 2
	var ticks [processes]chan time.Time
	var done [processes]chan compaction
	clients := [processes]*Client{s.client(t), s.client(t)}
	for i, c := range clients {
		ticks[i], done[i] = make(chan time.Time), make(chan compaction)
		counting := &compactions{KV: c.etcd.KV}
		c.etcd.KV = counting
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.compactAt(ctx, ticks[i], func(state compaction) { done[i] <- state })
		}()
		t.Cleanup(func() { cancel(); <-ended })
	}
	did := func(i int) []int64 { return clients[i].etcd.KV.(*compactions).to }
	var before int64 // where etcd was in the last round
	for round := range 6 {
		if round == 4 {
			ticks[0] = nil // its process dies
		}
		resp, err := clients[0].etcd.Put(t.Context(), "x", fmt.Sprint(round))
		if err != nil {
			t.Fatal(err)
		}
		for i := range processes {
			if ticks[i] != nil {
				ticks[i] <- time.Time{}
				<-done[i]
			}
		}
		if n := len(did(0)) + len(did(1)); round < 4 && n != round {
			t.Errorf("after round %d there were %d compactions, want one a round from the second on", round, n)
		}
		for i := range processes {
			for _, at := range did(i) {
				if at >= resp.Header.Revision {
					t.Errorf("process %d compacted to %d, which is not older than the round at %d", i, at, resp.Header.Revision)
				}
			}
		}
		if _, err := clients[1].etcd.Get(t.Context(), "x", clientv3.WithRev(max(before, 1))); round < 4 && before > 0 && err != nil {
			t.Errorf("round %d: the state of the round before: %v", round, err)
		}
		before = resp.Header.Revision + 1 // the put of the claim
	}
	if len(did(0)) != 3 || len(did(1)) != 2 {
		t.Errorf("compactions by the first: %v; by the second, which took over: %v", did(0), did(1))
	}
}

// compactions records the compactions of a client.
type compactions struct {
	clientv3.KV
	to []int64
}

func (c *compactions) Compact(ctx context.Context, rev int64, opts ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	c.to = append(c.to, rev)
	return c.KV.Compact(ctx, rev, opts...)
}

// A full etcd is compacted although it cannot store the claim of a round.
func TestCompactionOfAFullEtcd(t *testing.T) {
	t.Parallel()
	const quota = 2 << 20
	c := newServer(t, func(cfg *embed.Config) { cfg.QuotaBackendBytes = quota }).client(t)
	state, _, err := c.compactRound(t.Context(), compaction{})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = c.etcd.Put(t.Context(), c.prefix+"x", strings.Repeat("x", quota/10))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	for range 2 {
		next, compacted, err := c.compactRound(t.Context(), state)
		if err != nil || compacted != state.rev {
			t.Errorf("a round compacts to %d (%v), want %d", compacted, err, state.rev)
		}
		state = next
	}
	if _, err := c.etcd.Get(t.Context(), c.prefix+"x", clientv3.WithRev(state.rev-1)); !isCompacted(err) {
		t.Errorf("history is still there: %v", err)
	}
}
