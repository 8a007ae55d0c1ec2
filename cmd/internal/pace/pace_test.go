package pace

import (
	"runtime"
	"testing"
)

const mb = 1 << 20

func TestFit(t *testing.T) {
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

// A process that allocates much gets room; once it has been quiet for a while
// the room is taken back, and memory once, if there is any to give.
func TestPacer(t *testing.T) {
	p := &pacer{percent: 100, work: ForTraffic}
	now := sample{live: 8 * mb, marked: 6 * mb}
	for i, step := range []struct {
		allocated []uint64 // MB in each interval
		unneeded  uint64
		percent   int // in the end
		given     int
	}{
		{[]uint64{0, 0, 0, 0, 0, 0, 0}, 10 * mb, 50, 1}, // starting is over
		{[]uint64{0, 0, 1, 0, 0, 0, 0}, 10 * mb, 50, 0},
		{[]uint64{4, 4, 4, 4}, 10 * mb, 50, 0},
		{[]uint64{8}, 10 * mb, 600, 0},
		{[]uint64{0, 0, 0, 0, 3, 0, 0, 0, 0}, 10 * mb, 217, 0},
		{[]uint64{0}, 10 * mb, 50, 1},
		{[]uint64{16}, 10 * mb, 1200, 0},
		{[]uint64{100}, 10 * mb, 2400, 0},
		{[]uint64{0, 0, 0, 0}, 10 * mb, 2400, 0}, // between two bursts
		{[]uint64{0, 0, 0, 0}, mb, 50, 0},        // nothing to give
	} {
		given := 0
		for _, n := range step.allocated {
			now.unneeded = step.unneeded
			for range p.looks() {
				now.allocated += n * mb / uint64(p.looks())
				if p.next(now) {
					given++
				}
			}
		}
		if p.percent != step.percent || given != step.given {
			t.Errorf("step %d: %d %%, memory given back %d times; want %d %%, %d", i, p.percent, given, step.percent, step.given)
		}
	}
}

// The room of a busy process is for what it allocates in its bursts: all that is
// allocated in a second may come in a quarter of it.
func TestBurst(t *testing.T) {
	for _, c := range []struct {
		looks []uint64 // MB
		want  int
	}{
		{[]uint64{10}, 750},              // not busy yet: it may have come evenly
		{[]uint64{10, 2, 2, 2, 2}, 750},  // evenly indeed
		{[]uint64{10, 8, 0, 0, 0}, 2400}, // not so
		{[]uint64{10, 8, 0, 0, 0, 0, 0, 8}, 2400},
		{[]uint64{10, 4, 0, 0, 4}, 1200},
	} {
		p := &pacer{percent: 100, work: ForTraffic}
		now := sample{live: 8 * mb, marked: 6 * mb}
		for _, n := range c.looks {
			now.allocated += n * mb
			p.next(now)
		}
		if p.percent != c.want {
			t.Errorf("%d MB: %d %%, want %d", c.looks, p.percent, c.want)
		}
	}
}

// A process in which a burst begins gets room at its first collection, and not when
// it is looked at next, however long ago it was looked at. One that allocates as slowly
// as before stays quiet.
func TestWake(t *testing.T) {
	for _, c := range []struct {
		allocated, since uint64 // KB until the collection, and in the burst behind it
		want             int
	}{
		{4 << 10, 200, 750}, // 10 MB a second
		{4 << 10, 165, 618},
		{1 << 10, 200, 50}, // next to nothing until then
		{4 << 10, 80, 50},
		{0, 0, 50},
	} {
		p := &pacer{percent: 50, work: ForTraffic}
		before := sample{allocated: c.allocated << 10, live: 8 * mb, marked: 6 * mb}
		now := before
		if now.allocated += c.since << 10; p.wake(before, now, burst) != (c.want != 50) || max(p.percent, c.want)-min(p.percent, c.want) > c.want/20 {
			t.Errorf("%d KB and %d KB behind it: %d %%, want %d", c.allocated, c.since, p.percent, c.want)
		}
	}
	// What comes behind is counted from there, and a look that finds more is heeded.
	p := &pacer{percent: 50, work: ForTraffic}
	before := sample{allocated: 4 * mb, live: 8 * mb, marked: 6 * mb}
	now := before
	now.allocated += mb / 4
	p.wake(before, now, burst)
	if now.allocated += 12 * mb; p.next(now) || p.percent != 2400 {
		t.Errorf("in the first quarter of a burst: %d %%, want 2400", p.percent)
	}
	if p.wake(now, now, burst) {
		t.Error("a busy process became busy")
	}
}

// The room is a small part of the memory that there is, if that is little.
func TestRoomInMemory(t *testing.T) {
	for _, c := range []struct {
		memory uint64
		want   int
	}{{0, 2400}, {64 << 30, 2400}, {2 << 30, 1600}, {128 * mb, 100}, {16 * mb, 75}} {
		p := &pacer{busy: true, work: ForTraffic, rate: 100 * mb, memory: c.memory}
		if got := p.fit(sample{live: 8 * mb, marked: 6 * mb}); got != c.want {
			t.Errorf("of %d MB: %d %%, want %d", c.memory/mb, got, c.want)
		}
	}
	if n := Memory(); runtime.GOOS == "linux" && n < 64*mb {
		t.Errorf("this process may have %d bytes", n)
	}
}

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		work      Work
		allocated uint64
		want      int
	}{
		{ForTraffic, 2 * mb, 12}, {ForTraffic, 12 * mb, 225}, {ForTraffic, 24 * mb, 450}, {ForTraffic, 500 * mb, 600},
		{ForObjects, 10 * mb, 25}, {ForObjects, 500 * mb, 25},
	} {
		p := &pacer{percent: 100, work: c.work}
		if p.next(sample{allocated: c.allocated, live: 32 * mb, marked: 6 * mb}); p.percent != c.want {
			t.Errorf("%d MB a second, work %d: %d %%, want %d %%", c.allocated/mb, c.work, p.percent, c.want)
		}
	}
}

func TestSteady(t *testing.T) {
	p := &pacer{percent: 50}
	for _, live := range []uint64{8 * mb, 9 * mb, 7 * mb} {
		if p.next(sample{live: live, marked: 6 * mb}); p.percent != 50 {
			t.Errorf("%d MB: %d %%", live/mb, p.percent)
		}
	}
}

func TestRead(t *testing.T) {
	runtime.GC()
	s := read()
	if s.live == 0 || s.marked == 0 || s.allocated < s.live || s.marked > s.live {
		t.Errorf("the runtime says %+v", s)
	}
}
