package etcd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// In each round, one of two processes compacts one etcd to the revision of the round before.
// When one of them ends, the other one takes over. A report names the one of the last round.
func TestCompactors(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	same := func(cfg *Config) { cfg.Prefix = "/shared" }
	clients := []*Client{s.client(t, same), s.client(t, same)}
	var states [2]compaction
	var before int64 // etcd's revision in the round before
	for round := range 6 {
		resp, err := clients[0].etcd.Put(t.Context(), "x", fmt.Sprint(round))
		if err != nil {
			t.Fatal(err)
		}
		var compactions []int64
		for i, c := range clients {
			if i == 0 && round >= 4 {
				continue // its process has ended
			}
			next, compacted, err := c.compactRound(t.Context(), fmt.Sprint("process-", i), states[i])
			if err != nil {
				t.Fatal(err)
			}
			if states[i] = next; compacted > 0 {
				compactions = append(compactions, compacted)
			}
		}
		if want := round > 0; want != (len(compactions) == 1) || want && (compactions[0] < before || compactions[0] >= resp.Header.Revision) {
			t.Errorf("round %d at %d: got compactions to %v, want one from %d on: %t", round, resp.Header.Revision, compactions, before, want)
		}
		if _, err := clients[1].etcd.Get(t.Context(), "x", clientv3.WithRev(resp.Header.Revision)); err != nil {
			t.Errorf("round %d: the state of the round: %v", round, err)
		}
		before = resp.Header.Revision
		claimed := []Election{{Name: "compaction", Leader: "process-0"}}
		if round >= 4 {
			claimed[0].Leader = "process-1"
		}
		// In round 4 the process that goes on sees that the other one has ended.
		if got, err := clients[1].elections(t.Context()); round != 4 && (err != nil || !slices.Equal(got, claimed)) {
			t.Errorf("round %d: the report has %+v (%v), want %+v", round, got, err, claimed)
		}
	}
}

// A full etcd is compacted although it cannot store the claim of a round.
func TestCompactionOfAFullEtcd(t *testing.T) {
	t.Parallel()
	const quota = 2 << 20
	c := newServer(t, func(cfg *embed.Config) { cfg.QuotaBackendBytes = quota }).client(t)
	state, _, err := c.compactRound(t.Context(), "a", compaction{})
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
		next, compacted, err := c.compactRound(t.Context(), "a", state)
		if err != nil || compacted != state.rev {
			t.Errorf("a round compacts to %d (%v), want %d", compacted, err, state.rev)
		}
		state = next
	}
	if _, err := c.etcd.Get(t.Context(), c.prefix+"x", clientv3.WithRev(state.rev-1)); !isCompacted(err) {
		t.Errorf("history is still there: %v", err)
	}
}
