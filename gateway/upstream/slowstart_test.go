package upstream

import (
	"math"
	"testing"
	"time"

	"portico/apiservice/backend"
)

// shareOf is the share of requests that an endpoint has by weight, in percent.
func shareOf(t *testing.T, u *Upstream, i int) float64 {
	t.Helper()
	_, list, err := u.Explain(by("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.URL == u.endpoints[i].URL {
			return c.Share
		}
	}
	return 0
}

func wantShare(t *testing.T, u *Upstream, when string, i int, percent float64) {
	t.Helper()
	if got := shareOf(t, u, i); math.Abs(got-percent) > 0.5 {
		t.Errorf("%s: %.1f %%, want %.1f", when, got, percent)
	}
}

// The share of an endpoint that comes back begins with a tenth of its weight and
// has grown after ten seconds, however it was out.
func TestSlowStart(t *testing.T) {
	for name, c := range map[string]struct{ leaves, comes func(u *Upstream) }{
		"checks": {
			func(u *Upstream) { u.SetVerdict(u.endpoints[0].URL, unhealthy) },
			func(u *Upstream) { u.SetVerdict(u.endpoints[0].URL, healthy) },
		},
		"ejection": {
			func(u *Upstream) {
				for range 5 {
					u.failed(u.endpoints[0], 500)
				}
			},
			func(u *Upstream) { isOut(u) },
		},
		"refusal": {func(u *Upstream) { u.failedLocally(u.endpoints[0], errRefused) }, func(u *Upstream) { isOut(u) }},
		"weight":  {func(u *Upstream) { u.SetEndpoints(some(0, 1)) }, func(u *Upstream) { u.SetEndpoints(some(1, 1)) }},
		"new":     {func(u *Upstream) { u.SetEndpoints(some(1, 1)[1:]) }, func(u *Upstream) { u.SetEndpoints(some(1, 1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
				wantShare(t, u, "all began together", 0, 50)
				c.leaves(u)
				wantShare(t, u, "out", len(u.endpoints)-1, 100)
				time.Sleep(time.Millisecond)
				c.comes(u)
				wantShare(t, u, "at first", 0, 100*0.1/1.1)
				time.Sleep(5*time.Second + 100*time.Millisecond)
				wantShare(t, u, "half-way", 0, 100*0.5/1.5)
				if s := u.Status().Endpoints; math.Abs(s[0].Grown-0.5) > 0.02 || s[1].Grown != 1 {
					t.Errorf("half-way they have %v and %v", s[0].Grown, s[1].Grown)
				}
				time.Sleep(5 * time.Second)
				wantShare(t, u, "at the end", 0, 50)
				if !hasOwnShares(u) || u.growing != nil {
					t.Error("weights are not equal again")
				}
			})
		})
	}
}

// Growth is bent as the policy says, and there is none where it says none.
func TestSlowStartPolicy(t *testing.T) {
	back := func(u *Upstream) {
		u.SetVerdict(u.endpoints[0].URL, unhealthy)
		u.SetVerdict(u.endpoints[0].URL, healthy)
	}
	p := turns()
	p.SlowPercent, p.Aggression = 1, 200
	inTime(t, p, 2, func(t *testing.T, u *Upstream) {
		u.SetEndpoints(some(3, 1))
		back(u)
		wantShare(t, u, "at first", 0, 100*0.03/1.03)
		time.Sleep(2500*time.Millisecond + 10*time.Millisecond)
		wantShare(t, u, "the root of a quarter", 0, 100*1.5/2.5)
	})
	p.SlowStart = 0
	inTime(t, p, 2, func(t *testing.T, u *Upstream) {
		back(u)
		wantShare(t, u, "off", 0, 50)
	})
	p = turns()
	p.Balance = backend.ConsistentHash
	inTime(t, p, 2, func(t *testing.T, u *Upstream) {
		var before, after [64]*endpoint
		who := func(all *[64]*endpoint) {
			for i := range all {
				all[i] = pick(u, by(string(rune('a'+i))), short, nil)
			}
		}
		who(&before)
		back(u)
		if who(&after); after != before {
			t.Error("users do not come back to their endpoint")
		}
		if u.growing != nil || !hasOwnShares(u) {
			t.Error("shares grow that nobody goes by")
		}
		p.Balance = backend.LeastRequest
		u.SetPolicy(p)
		wantShare(t, u, "another policy meanwhile", 0, 100*0.1/1.1)
	})
}

// Turns of different weights are spread as ever once shares have grown, and while
// they grow: no endpoint gets what others were spared.
func TestTurnsAfterSlowStart(t *testing.T) {
	p := turns()
	p.Balance = backend.RoundRobin
	inTime(t, p, 2, func(t *testing.T, u *Upstream) {
		u.SetEndpoints(some(90, 10))
		wantTurns := func(when string, heavy float64) {
			t.Helper()
			const n = 1000
			got, inRow, longest := 0, 0, 0
			for range n {
				if pick(u, by("x"), short, nil) == u.endpoints[0] {
					got, inRow = got+1, 0
					continue
				}
				inRow++
				longest = max(longest, inRow)
			}
			if share := float64(got) / n; math.Abs(share-heavy) > 0.02 || longest > 2 {
				t.Errorf("%s: the heavier one gets %.3f, want %.3f; the other %d in a row", when, share, heavy, longest)
			}
		}
		for range 3 {
			u.SetVerdict(u.endpoints[0].URL, unhealthy)
			u.SetVerdict(u.endpoints[0].URL, healthy)
			for range 7 {
				pick(u, by("x"), short, nil)
			}
			time.Sleep(9 * time.Second)
			wantTurns("growing", 0.89)
			time.Sleep(2 * time.Second)
			wantTurns("grown", 0.9)
		}
		u.SetEndpoints(some(900, 100))
		pick(u, by("x"), short, nil)
		u.SetEndpoints(some(9, 1))
		wantTurns("scaled", 0.9)
	})
}

// One endpoint, or all at once, have nobody to spare them.
func TestSlowStartOfAll(t *testing.T) {
	inTime(t, turns(), 3, func(t *testing.T, u *Upstream) {
		for _, e := range u.endpoints {
			u.SetVerdict(e.URL, unhealthy)
		}
		want(t, u, "none")
		u.SetVerdict(u.endpoints[0].URL, healthy)
		wantShare(t, u, "the first", 0, 100)
		u.SetEndpoints(nil)
		u.SetEndpoints(some(1, 1))
		wantShare(t, u, "two from nothing", 0, 50)
		u.SetEndpoints(some(0, 0, 1, 1)[2:])
		wantShare(t, u, "two for two", 0, 50)
		time.Sleep(time.Hour)
	})
}
