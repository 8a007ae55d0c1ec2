package retry

import (
	"testing"
	"time"
)

// Retries may be a share of the requests of ten seconds, and some in each second.
func TestBudget(t *testing.T) {
	second := func(n float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(n * float64(time.Second))) }
	taken := func(b *Budget, at float64, percent, perSecond int) (n int) {
		for b.Take(second(at), percent, perSecond) {
			n++
		}
		return n
	}
	var b Budget
	if n := taken(&b, 0.5, 20, 3); n != 3 {
		t.Errorf("without traffic: %d, want 3", n)
	}
	for i := range 1000 {
		b.Count(second(1 + float64(i)/1000))
	}
	if n := taken(&b, 1.9, 20, 3); n != 197 {
		t.Errorf("20 %% of 1000 less the 3 before: %d", n)
	}
	if n := taken(&b, 2.5, 20, 3); n != 3 {
		t.Errorf("used up, the next second: %d", n)
	}
	if n := taken(&b, 2.6, 20, 0); n != 0 {
		t.Errorf("used up: %d", n)
	}
	for range 10 {
		b.Count(second(10.9))
	}
	if n := taken(&b, 10.95, 20, 0); n != 2 {
		t.Errorf("the thousand count for ten seconds, as do the retries: %d", n)
	}
	if n := taken(&b, 11.5, 20, 0); n != 0 {
		t.Errorf("after that they do not: %d", n)
	}
	for range 100 {
		b.Count(second(100))
	}
	if n := taken(&b, 100.1, 20, 0); n != 20 {
		t.Errorf("after a long pause: %d, want 20", n)
	}
	if n := taken(&b, 1000, 20, 1); n != 1 {
		t.Errorf("after another: %d", n)
	}
}
