package pace

import (
	"runtime"
	"testing"
)

const mb = 1 << 20

func TestFitMakesTheRoom(t *testing.T) {
	for _, c := range []struct {
		live, marked uint64
		busy, quiet  int
	}{
		{0, 0, maxPercent, maxPercent},
		{8 * mb, 6 * mb, 200, 50},                        // a gateway: little, most of it to be marked
		{32 * mb, 10 * mb, 50, 15},                       // a server with objects
		{100 * mb, 100 * mb, 100, 50},                    // Go's own pace, busy
		{2000 * mb, 200 * mb, 10, 10},                    // many objects
		{2 * mb, mb, 800, 200},                           // next to nothing
		{1 << 62, 1 << 62 / 200, minPercent, minPercent}, // without overflow
	} {
		now := sample{live: c.live, marked: c.marked}
		if got := (&pacer{busy: true, work: ForTraffic}).fit(now); got != c.busy {
			t.Errorf("%d MB, %d MB to mark, busy: %d %%, want %d %%", c.live/mb, c.marked/mb, got, c.busy)
		}
		if got := (&pacer{}).fit(now); got != c.quiet {
			t.Errorf("%d MB, %d MB to mark, quiet: %d %%, want %d %%", c.live/mb, c.marked/mb, got, c.quiet)
		}
	}
}

// A busy process gets room; once it has been idle for five intervals the room shrinks,
// and unused memory is returned once.
func TestPacerGivesRoomWhileBusyAndReturnsMemory(t *testing.T) {
	p := &pacer{percent: 100, work: ForTraffic}
	now := sample{live: 8 * mb, marked: 6 * mb}
	for i, step := range []struct {
		allocated []uint64 // MB in each interval
		unused    uint64
		percent   int // in the end
		released  int
	}{
		{[]uint64{0, 0, 0, 0, 0, 0, 0}, 10 * mb, 50, 1}, // starting is over
		{[]uint64{0, 0, 1, 0, 0, 0, 0}, 10 * mb, 50, 0},
		{[]uint64{4, 4, 4, 4}, 10 * mb, 50, 0},
		{[]uint64{8}, 10 * mb, 600, 0},
		{[]uint64{3, 0, 0, 0, 0}, 10 * mb, 351, 0},
		{[]uint64{0}, 10 * mb, 50, 1},
		{[]uint64{16}, 10 * mb, 1200, 0},
		{[]uint64{100}, 10 * mb, 2400, 0},
		{[]uint64{0, 0, 0, 0}, 10 * mb, 2400, 0}, // between two bursts
		{[]uint64{0}, mb, 50, 0},                 // nothing to return
	} {
		released := 0
		for _, n := range step.allocated {
			now.unused = step.unused
			now.allocated += n * mb
			if p.next(now) {
				released++
			}
		}
		if p.percent != step.percent || released != step.released {
			t.Errorf("step %d: %d %%, memory returned %d times; want %d %%, %d", i, p.percent, released, step.percent, step.released)
		}
	}
}

// The room is at most a sixteenth of the memory of the process.
func TestRoomIsBoundedByMemory(t *testing.T) {
	for _, c := range []struct {
		memory uint64
		want   int
	}{{0, 2400}, {64 << 30, 2400}, {2 << 30, 1600}, {128 * mb, 100}, {16 * mb, 75}} {
		p := &pacer{busy: true, work: ForTraffic, rate: 100 * mb, memory: c.memory}
		if got := p.fit(sample{live: 8 * mb, marked: 6 * mb}); got != c.want {
			t.Errorf("with %d MB of memory: %d %%, want %d", c.memory/mb, got, c.want)
		}
	}
	if n := Memory(); runtime.GOOS == "linux" && n < 64*mb {
		t.Errorf("Memory() = %d", n)
	}
}

func TestRoomDependsOnWork(t *testing.T) {
	for _, c := range []struct {
		work      Work
		allocated uint64
		want      int
	}{
		{ForTraffic, 2 * mb, 12}, {ForTraffic, 12 * mb, 225}, {ForTraffic, 24 * mb, 450}, {ForTraffic, 500 * mb, 600},
		{ForObjects, 10 * mb, 25}, {ForObjects, 80 * mb, 25}, {ForObjects, 500 * mb, 156},
	} {
		p := &pacer{percent: 100, work: c.work}
		if p.next(sample{allocated: c.allocated, live: 32 * mb, marked: 6 * mb}); p.percent != c.want {
			t.Errorf("%d MB a second, work %d: %d %%, want %d %%", c.allocated/mb, c.work, p.percent, c.want)
		}
	}
}

// Small changes of the heap do not change the percentage.
func TestSmallChangesKeepThePercentage(t *testing.T) {
	p := &pacer{percent: 50}
	for _, live := range []uint64{8 * mb, 9 * mb, 7 * mb} {
		if p.next(sample{live: live, marked: 6 * mb}); p.percent != 50 {
			t.Errorf("%d MB: %d %%", live/mb, p.percent)
		}
	}
}

func TestReadSamplesTheHeap(t *testing.T) {
	runtime.GC()
	s := read()
	if s.live == 0 || s.marked == 0 || s.allocated < s.live || s.marked > s.live {
		t.Errorf("read() = %+v", s)
	}
}
