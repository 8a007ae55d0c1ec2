package serve

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// distribution counts values by the smallest bound that they do not exceed. It
// is a histogram at a third of the price of prometheus's: the values are whole
// numbers (nanoseconds, bytes), so that their sum needs no loop, and most are
// found at the first bounds. One distribution may be shown as several metrics,
// each with some of its bounds. Safe for concurrent use.
type distribution struct {
	bounds []int64         // ascending; shared and never changed
	counts []atomic.Uint64 // one more than bounds
	sum    atomic.Int64
}

func newDistribution(bounds []int64) *distribution {
	return &distribution{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// observe counts one value. A negative one counts as nothing of that size.
func (d *distribution) observe(value int64) {
	i := 0
	for i < len(d.bounds) && value > d.bounds[i] {
		i++
	}
	d.counts[i].Add(1)
	d.sum.Add(value)
}

// tallied is what a distribution has counted.
type tallied struct {
	bounds []int64
	counts []uint64 // by bound, each without those of the bounds below
	count  uint64
	sum    int64
}

// read adds what the distributions, which have the same bounds, have counted.
func read(all ...*distribution) tallied {
	t := tallied{bounds: all[0].bounds, counts: make([]uint64, len(all[0].counts))}
	for _, d := range all {
		for i := range d.counts {
			n := d.counts[i].Load()
			t.counts[i] += n
			t.count += n
		}
		t.sum += d.sum.Load()
	}
	return t
}

// scale is how a metric shows a distribution: at which bounds, and how many of
// the distribution's units are one of the metric's.
type scale struct {
	bounds []float64
	unit   float64
}

// inSeconds shows times that were counted in nanoseconds.
func inSeconds(bounds ...float64) scale { return scale{bounds, float64(time.Second)} }

// units returns the scale's bounds in the units of a distribution.
func (s scale) units() []int64 {
	out := make([]int64, len(s.bounds))
	for i, b := range s.bounds {
		out[i] = int64(math.Round(b * s.unit))
	}
	return out
}

// merged returns the bounds of both, in order.
func merged(a, b []int64) []int64 {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// metric shows the tally. A bound that the distribution has not falls to the
// next one below.
func (t tallied) metric(desc *prometheus.Desc, s scale, labels ...string) prometheus.Metric {
	upTo, n, i := make(map[float64]uint64, len(s.bounds)), uint64(0), 0
	for j, bound := range s.units() {
		for i < len(t.bounds) && t.bounds[i] <= bound {
			n += t.counts[i]
			i++
		}
		upTo[s.bounds[j]] = n
	}
	return prometheus.MustNewConstHistogram(desc, t.count, float64(t.sum)/s.unit, upTo, labels...)
}
