package inflight

import (
	"context"
	"strings"
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

// Bounds replace the defaults, and what cannot be is refused.
func TestBounds(t *testing.T) {
	t.Parallel()
	limits, err := Bounds{All: 100, Unauthenticated: 10, PerAddress: 5}.limits(1024)
	if err != nil || limits.Users.Max() != 90 || limits.Unauthenticated != 10 || limits.PerAddress != 5 || limits.Idle != 90 {
		t.Errorf("got %+v, %v", limits, err)
	}
	if limits, err = (Bounds{All: 10}).limits(1024); err != nil || limits.Users.Max()+limits.Unauthenticated != 10 || limits.Unauthenticated != 5 {
		t.Errorf("got %+v, %v", limits, err)
	}
	for flag, b := range map[string]Bounds{"--max-connections": {All: 2000}, "--max-unauthenticated-connections": {All: 10, Unauthenticated: 10}} {
		if _, err := b.limits(1024); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%+v: got %v, want %s", b, err, flag)
		}
	}
}

// One user gets 11,000 connections of 20,000 descriptors, and some are kept for the process
// however few there are.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	for _, descriptors := range []int{256, 1024, 4096, 20_000, 1 << 20} {
		limits, err := Bounds{}.limits(descriptors)
		if err != nil {
			t.Fatal(err)
		}
		limit, n := fairshare.New(limits.Users.Max(), 0), 0
		for limit.Take("jane") {
			n++
		}
		if descriptors == 20_000 && n < 11_000 {
			t.Errorf("one user gets %d connections of %d descriptors", n, descriptors)
		}
		if all := limits.Users.Max() + limits.Unauthenticated; all > descriptors*7/8 {
			t.Errorf("%d connections of %d descriptors", all, descriptors)
		}
	}
}
