package routing

import (
	"errors"
	"testing"
	"time"
)

// A stream that ends as soon as it has told everything, again and again, is opened
// ever more seldom: each has all routes looked at. A server that is only started
// again is followed at once.
func TestAfterStream(t *testing.T) {
	ended := errors.New("the server ended it")
	pauses := func(told bool, lasted time.Duration, n int) (all []time.Duration) {
		last := time.Duration(0)
		for range n {
			last = afterStream(last, told, lasted, ended)
			all = append(all, last)
		}
		return all
	}
	const ms = time.Millisecond
	for _, tc := range []struct {
		name   string
		told   bool
		lasted time.Duration
		first  []time.Duration
		last   time.Duration
	}{
		{"it lasts", true, streamLasts, []time.Duration{20 * ms, 20 * ms}, 20 * ms},
		{"it ends at once", true, ms, []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamShortMax},
		{"nobody is there", false, ms, []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamRetryMax},
		{"nobody says anything", false, time.Minute, []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamRetryMax},
	} {
		got := pauses(tc.told, tc.lasted, 12)
		for i, want := range tc.first {
			if got[i] != want {
				t.Errorf("%s: the %d. pause is %v, want %v", tc.name, i+1, got[i], want)
			}
		}
		if got[11] != tc.last {
			t.Errorf("%s: the last pause is %v, want %v", tc.name, got[11], tc.last)
		}
	}
}
