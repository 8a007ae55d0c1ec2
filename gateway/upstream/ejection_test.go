package upstream

import (
	"slices"
	"testing"
	"time"

	"portico/apiservice/backend"
)

// ejectedFor ejects the first endpoint by answers and returns how long it is out.
func ejectedFor(u *Upstream) time.Duration {
	for range 5 {
		u.failed(u.endpoints[0], 500)
	}
	return isOut(u)
}

// isOut waits until the first endpoint gets requests and returns how long it was.
func isOut(u *Upstream) time.Duration {
	began := time.Now()
	for !slices.Contains(gets(u), 0) {
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// about fails unless a time is that of an ejection of some seconds.
func about(t *testing.T, what string, got time.Duration, seconds int) {
	t.Helper()
	least := time.Duration(seconds) * time.Second
	if got < least || got > least+3*time.Second+10*time.Millisecond {
		t.Errorf("%s: out for %v, want %d s and up to 3 more", what, got, seconds)
	}
}

// Every ten seconds without an ejection take one back.
func TestEjectionForgiven(t *testing.T) {
	inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
		about(t, "first", ejectedFor(u), 30)
		about(t, "second", ejectedFor(u), 60)
		about(t, "third", ejectedFor(u), 90)
		time.Sleep(9 * time.Second)
		about(t, "too soon", ejectedFor(u), 120)
		time.Sleep(21 * time.Second)
		about(t, "two were taken back", ejectedFor(u), 90)
		for i := range 20 {
			about(t, "again and again", ejectedFor(u), min(120+30*i, 300))
		}
		time.Sleep(81 * time.Second)
		about(t, "eight of ten were taken back, not of twenty", ejectedFor(u), 90)
	})
}

// An ejection that a check ended early counts once, like any, and is over when
// it was ended. Where connections break again after that, checks prove nothing.
func TestEjectionEndedEarly(t *testing.T) {
	inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
		e := u.endpoints[0]
		breaks := func() {
			for range 3 {
				u.failedLocally(e, errBroken)
			}
		}
		breaks()
		want(t, u, "the first", 1)
		u.passed(e)
		want(t, u, "is ended", 0, 1)
		breaks()
		for range 59 {
			want(t, u, "the second", 1)
			u.passed(e)
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		want(t, u, "is over", 0, 1)
		time.Sleep(21 * time.Second)
		breaks()
		want(t, u, "two were taken back since", 1)
		u.passed(e)
		want(t, u, "so that a check ends it", 0, 1)
		about(t, "one was", ejectedFor(u), 60)
		for range 5 {
			u.failed(e, 500)
		}
		u.SetVerdict(e.URL, unhealthy)
		u.SetVerdict(e.URL, healthy)
		want(t, u, "risen", 0, 1)
		time.Sleep(11 * time.Second)
		about(t, "one was taken back", ejectedFor(u), 90)
	})
}

// Endpoints that were ejected together come back one by one.
func TestEjectionJitter(t *testing.T) {
	p := turns()
	p.MaxEjectionPercent = 100
	inTime(t, p, 2, func(t *testing.T, u *Upstream) {
		lengths := map[time.Duration]bool{}
		for range 5 {
			lengths[ejectedFor(u)] = true
			time.Sleep(time.Hour)
		}
		if len(lengths) == 1 {
			t.Errorf("all ejections were as long: %v", lengths)
		}
	})
}

// The time of a refusal that a check ended is not that of the next.
func TestRefusalAfterRefusal(t *testing.T) {
	inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
		e := u.endpoints[0]
		for _, ends := range []func(){func() { u.passed(e) }, func() { u.SetVerdict(e.URL, healthy) }} {
			u.failedLocally(e, errRefused)
			time.Sleep(refusedFor - time.Millisecond)
			ends()
			u.failedLocally(e, errRefused)
			time.Sleep(refusedFor / 2)
			want(t, u, "refused a second ago", 1)
			time.Sleep(refusedFor)
			want(t, u, "three seconds ago", 0, 1)
		}
	})
}

// A policy that ejects nobody takes back what one before it did.
func TestEjectionTurnedOff(t *testing.T) {
	inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
		for range 5 {
			u.failed(u.endpoints[0], 500)
		}
		p := turns()
		p.Balance = backend.ConsistentHash
		u.SetPolicy(p)
		want(t, u, "another policy", 1)
		p.MaxEjectionPercent = 0
		u.SetPolicy(p)
		want(t, u, "nobody is to be out", 0, 1)
	})
}
