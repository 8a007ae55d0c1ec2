package inflight

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"portico/resource/fairshare"
)

// Long-running requests are ended one after the other, in bounded time.
func TestLongRequestsEndSpread(t *testing.T) {
	for _, c := range []struct {
		requests           int
		within             time.Duration
		early, late, limit time.Duration // when a quarter and all have ended
	}{
		{400, 5 * time.Second, 300 * time.Millisecond, 1900 * time.Millisecond, 2100 * time.Millisecond}, // 200 a second
		{10000, 5 * time.Second, time.Second, 4 * time.Second, 5100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var g Group
			began, ended := time.Now(), []time.Duration(nil)
			for range c.requests {
				end := context.CancelCauseFunc(func(error) { ended = append(ended, time.Since(began)) })
				g.Add(&end)
			}
			g.End(c.within)
			if len(ended) != c.requests {
				t.Fatalf("%d of %d ended", len(ended), c.requests)
			}
			if quarter, last := ended[c.requests/4], ended[c.requests-1]; quarter < c.early || last < c.late || last > c.limit {
				t.Errorf("%d requests: a quarter after %v, all after %v", c.requests, quarter, last)
			}
		})
	}
}

// One user gets 12,000 connections of 20,000 descriptors, and some are kept for the process
// however few there are.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	for _, descriptors := range []int{256, 1024, 4096, 20_000, 1 << 20} {
		limits := connectionLimits(descriptors)
		limit, n := fairshare.New(limits.Users.Max(), 0), 0
		for limit.Take("jane") {
			n++
		}
		if descriptors == 20_000 && n < 12_000 {
			t.Errorf("one user gets %d connections of %d descriptors", n, descriptors)
		}
		if all := limits.Users.Max() + limits.Unauthenticated; all > descriptors*7/8 {
			t.Errorf("%d connections of %d descriptors", all, descriptors)
		}
	}
}
