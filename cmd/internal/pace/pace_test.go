package pace

import (
	"runtime"
	"testing"
)

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{0: 800, 1 << 20: 800, 8 << 20: 300, 24 << 20: 100, 1 << 30: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("%d bytes: %d %%, want %d", live, got, want)
		}
	}
}

// A process is busy when it collects often, and stays so while it collects at
// all; what it took goes back once, when it is quiet.
func TestPacer(t *testing.T) {
	p := &pacer{percent: defaultPercent, busy: true}
	now := sample{live: 8 << 20}
	run := func(cycles ...uint64) (percents []int, given int) {
		for _, n := range cycles {
			now.cycles += n
			percent, giveBack := p.next(now)
			p.percent = percent
			percents = append(percents, percent)
			if giveBack {
				given++
			}
		}
		return percents, given
	}
	for i, step := range []struct {
		cycles  []uint64
		percent int // in the end
		given   int
	}{
		{[]uint64{1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 100, 1}, // starting is over
		{[]uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 100, 0},
		{[]uint64{1, 2, 1, 2}, 100, 0},
		{[]uint64{3}, 300, 0},
		{[]uint64{2, 2, 0, 1, 0, 1, 0, 1, 0, 1}, 300, 0},
		{[]uint64{2, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 300, 0},
		{[]uint64{0}, 100, 1},
		{[]uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 100, 0},
		{[]uint64{9}, 300, 0},
	} {
		percents, given := run(step.cycles...)
		if got := percents[len(percents)-1]; got != step.percent || given != step.given {
			t.Errorf("step %d: %d %%, memory given back %d times; want %d %%, %d", i, got, given, step.percent, step.given)
		}
	}
}

func TestRead(t *testing.T) {
	runtime.GC()
	if s := read(); s.live == 0 {
		t.Error("the runtime says nothing")
	}
}
