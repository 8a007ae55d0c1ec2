package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// crowd are requests that wait for connections which a test makes, in a time of
// its own.
type crowd struct {
	*direct
	t     *testing.T
	dials int
	all   sync.WaitGroup
	mu    sync.Mutex
	order []string // how the waits ended: "name conn", "name reused", "name error"
	ended map[string]time.Duration
	errs  map[string]error
	conns []*directConn
	start time.Time
	told  atomic.Int32 // times that the endpoint was suspected
}

const crowdLimit = time.Second

// newCrowd makes at most two connections at a time, by dial.
func newCrowd(t *testing.T, dial func(ctx context.Context, n int) error) *crowd {
	c := &crowd{t: t, ended: map[string]time.Duration{}, errs: map[string]error{}, start: time.Now()}
	c.direct = &direct{
		limit: func() time.Duration { return crowdLimit }, maxDials: 2, idleTimeout: time.Hour,
		successor: func() (*direct, error) { return nil, errRetired }, broken: func() { c.told.Add(1) },
		dial: func(ctx context.Context) (net.Conn, net.Conn, error) {
			c.mu.Lock()
			c.dials++
			n := c.dials
			c.mu.Unlock()
			if err := dial(ctx, n); err != nil {
				return nil, nil, &ConnectError{err}
			}
			conn, _ := net.Pipe()
			return conn, conn, nil
		},
	}
	return c
}

// come has a request wait, and stands until it does.
func (c *crowd) come(ctx context.Context, name string, fresh bool) {
	c.all.Go(func() {
		conn, reused, err := c.wait(ctx, fresh)
		c.mu.Lock()
		defer c.mu.Unlock()
		how := "conn"
		switch {
		case err != nil:
			how = "error"
		case reused:
			how = "reused"
		}
		c.order, c.ended[name], c.errs[name] = append(c.order, name+" "+how), time.Since(c.start), err
		if conn != nil {
			c.conns = append(c.conns, conn)
		}
	})
	synctest.Wait()
}

// many have n come; they are named by number.
func (c *crowd) many(n int) {
	for i := range n {
		c.come(c.t.Context(), fmt.Sprint(i), false)
	}
}

func (c *crowd) want(order string) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := strings.Join(c.order, ", "); got != order {
		c.t.Errorf("%s; want %s", got, order)
	}
	c.order = nil
}

// dialed checks how many connections were made so far, or are being made.
func (c *crowd) dialed(want int) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dials != want {
		c.t.Errorf("%d connections were made, or are; want %d", c.dials, want)
	}
}

// finish waits for all, and checks that nothing is left behind.
func (c *crowd) finish() {
	c.t.Helper()
	c.all.Wait()
	time.Sleep(time.Hour) // of the test's: what is being made is there, or failed
	synctest.Wait()
	if c.line.waits.Len() != 0 || c.line.dialing != 0 {
		c.t.Errorf("%d wait, %d connections are being made", c.line.waits.Len(), c.line.dialing)
	}
	c.retire()
}

// hung is a dial that never ends by itself.
func hung(ctx context.Context, _ int) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// after is a dial that takes so long, or until it may take no longer, and then
// ends so.
func after(d time.Duration, err error) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		select {
		case <-time.After(d):
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Where nothing answers, each request has its own time, however many wait and
// however few connections are being made.
func TestWaitOfHungEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, hung)
		came := map[string]time.Duration{}
		for i := range 50 {
			came[fmt.Sprint(i)] = time.Since(c.start)
			c.come(t.Context(), fmt.Sprint(i), false)
			time.Sleep(10 * time.Millisecond)
		}
		c.finish()
		for name, at := range came {
			var connect *ConnectError
			if took := c.ended[name] - at; took < crowdLimit || took > crowdLimit+crowdLimit/graceShare || !errors.As(c.errs[name], &connect) {
				t.Errorf("%s: %v after %v", name, c.errs[name], took)
			}
		}
		if !errors.Is(c.errs["0"], errSlow) || !strings.Contains(c.errs["40"].Error(), errSlow.Error()) {
			t.Errorf("the first is told %v, another %v", c.errs["0"], c.errs["40"])
		}
	})
}

// Where nobody listens, all who wait know it at once.
func TestWaitOfRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, after(10*time.Millisecond, syscall.ECONNREFUSED))
		c.many(500)
		time.Sleep(10 * time.Millisecond)
		c.come(t.Context(), "later", false)
		c.finish()
		for name, err := range c.errs {
			if !decisive(err) || c.ended[name] > 30*time.Millisecond {
				t.Errorf("%s: %v after %v", name, err, c.ended[name])
			}
		}
		if c.dials > 6 {
			t.Errorf("%d dials", c.dials)
		}
	})
}

// An error that proves nothing is that of one request, as if the dial were its own.
func TestWaitOfFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, func(ctx context.Context, n int) error {
			if n%2 == 0 {
				return after(10*time.Millisecond, errBroken)(ctx, n)
			}
			return after(20*time.Millisecond, nil)(ctx, n)
		})
		c.many(3)
		time.Sleep(10 * time.Millisecond)
		c.want("0 error")
		time.Sleep(10 * time.Millisecond)
		c.want("1 conn")
		c.finish()
		if c.errs["2"] != nil || c.told.Load() != 0 {
			t.Errorf("%v; suspected %d times", c.errs["2"], c.told.Load())
		}
	})
}

// Connections that come free are for those who came first. Who needs a new one
// does not get an old one.
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, func(ctx context.Context, n int) error {
			return after(900*time.Millisecond+time.Duration(n), nil)(ctx, n)
		})
		for i := range 5 {
			c.come(t.Context(), fmt.Sprint(i), i == 1)
		}
		conn, _ := net.Pipe()
		old := newDirectConn(c.direct, conn, conn)
		c.put(old)
		c.want("0 reused")
		c.put(old)
		c.want("2 reused")
		time.Sleep(900*time.Millisecond + 2)
		c.want("1 conn, 3 conn")
		old.until = time.Now().Add(-time.Second)
		c.put(old) // too old for anybody
		c.want("")
		c.finish()
		if c.dials != 3 || c.errs["4"] != nil {
			t.Errorf("%d connections were made; %v", c.dials, c.errs["4"])
		}
	})
}

// While connections are made, or come free, nobody is given up, however long that
// takes; when nothing comes of the endpoint any more, all are within their time.
func TestWaitWhileSlow(t *testing.T) {
	t.Run("made", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, after(900*time.Millisecond, nil))
			c.many(10)
			c.finish()
			for name, err := range c.errs {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if c.ended["9"] != 4500*time.Millisecond || c.told.Load() != 0 {
				t.Errorf("the last has waited %v; suspected %d times", c.ended["9"], c.told.Load())
			}
		})
	})
	t.Run("free", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, hung)
			c.many(8)
			conn, _ := net.Pipe()
			old := newDirectConn(c.direct, conn, conn)
			for range 5 {
				time.Sleep(900 * time.Millisecond)
				c.put(old)
			}
			c.want("0 reused, 1 reused, 2 reused, 3 reused, 4 reused")
			c.finish()
			for _, name := range []string{"5", "6", "7"} {
				if c.errs[name] == nil || c.ended[name] > 4500*time.Millisecond+crowdLimit+crowdLimit/graceShare {
					t.Errorf("%s: %v after %v", name, c.errs[name], c.ended[name])
				}
			}
		})
	})
}

// While connections come free one after the other, one is made only for who has
// waited for as long as that takes; or needs a new one. Where none came free of
// late, it is made at once.
func TestWaitWhereConnectionsComeFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 3 * time.Millisecond
		c := newCrowd(t, after(took, nil))
		c.come(t.Context(), "first", false)
		c.dialed(1) // there was none ever
		time.Sleep(took)
		c.want("first conn")

		c.come(t.Context(), "patient", false)
		time.Sleep(took - 1)
		c.dialed(1)
		c.put(c.conns[0])
		c.want("patient reused")
		time.Sleep(2 * took)
		c.dialed(1)

		c.come(t.Context(), "waits", false)
		time.Sleep(1)
		c.come(t.Context(), "too", false)
		time.Sleep(took - 2)
		c.dialed(1)
		c.come(t.Context(), "late", false)
		time.Sleep(1)
		c.dialed(2)
		time.Sleep(1)
		c.dialed(3)
		time.Sleep(took - 2)
		c.dialed(3) // two at the same time are the most
		time.Sleep(1)
		c.want("waits conn")
		c.dialed(4)
		time.Sleep(1)
		c.want("too conn")
		c.put(c.conns[1])
		c.want("late reused")
		time.Sleep(took)

		c.come(t.Context(), "new", true)
		c.dialed(5)
		time.Sleep(took)
		c.want("new conn")
		c.come(t.Context(), "idle", false)
		c.want("idle reused")

		time.Sleep(flowing)
		c.come(t.Context(), "alone", false)
		c.dialed(6)
		time.Sleep(took)
		c.want("alone conn")

		// A dial that took long is no measure.
		c.line.dialTook = time.Second
		c.come(t.Context(), "last", false)
		time.Sleep(maxPatience - 1)
		c.dialed(6)
		time.Sleep(1)
		c.dialed(7)
		c.finish()
	})
}

// Where it is the processor that all wait for no connections are made: until there is
// one again, or for as long as nobody is to wait for that, and then one.
func TestWaitForTheProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 3 * time.Millisecond
		c := newCrowd(t, after(took, nil))
		// busy lets a time pass in which there is none, while others are served.
		busy := func(d time.Duration) {
			for range d / lookEvery {
				synctest.Wait()
				c.direct.mu.Lock()
				c.line.busy, c.line.moved = time.Now(), time.Now()
				c.direct.mu.Unlock()
				time.Sleep(lookEvery)
			}
		}
		c.come(t.Context(), "first", false)
		time.Sleep(took)
		c.want("first conn")

		c.come(t.Context(), "held up", false)
		busy(2 * took)
		c.come(t.Context(), "next", false)
		c.dialed(1)
		time.Sleep(calm)
		c.dialed(2)
		time.Sleep(took - calm)
		c.dialed(3)
		time.Sleep(took)

		for range 4 {
			c.come(t.Context(), "starved", false)
		}
		busy(starved - lookEvery)
		c.dialed(3)
		busy(lookEvery)
		c.dialed(4)
		busy(starved - lookEvery)
		c.dialed(4)
		busy(lookEvery)
		c.dialed(5)
		c.finish()
	})
}

// As many connections are made at the same time as keep the processors busy, by what
// the quickest one took; beside those that take longer others are begun, one after
// the other.
func TestDialsForProcessors(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes func(n int) time.Duration
		// atOnce are those under way when n wait, after these times since the first one.
		atOnce map[time.Duration]int
	}{
		{"not known yet", func(int) time.Duration { return time.Second },
			map[time.Duration]int{0: 2, 10*time.Millisecond - 1: 2, 10 * time.Millisecond: 3, 25 * time.Millisecond: 4, 200 * time.Millisecond: 16}},
		{"quick", func(int) time.Duration { return minPatience - 1 },
			map[time.Duration]int{0: 2, minPatience: 16}},
		{"a processor's work", func(int) time.Duration { return 3 * time.Millisecond },
			map[time.Duration]int{0: 2, 4 * time.Millisecond: 3, 30 * time.Millisecond: 3}},
		{"the first is quickest", func(n int) time.Duration { return time.Duration(1+min(n, 20)) * time.Millisecond },
			map[time.Duration]int{0: 2, 3 * time.Millisecond: 2, 9 * time.Millisecond: 2, 14 * time.Millisecond: 2}},
		{"a long way", func(int) time.Duration { return 100 * time.Millisecond },
			map[time.Duration]int{0: 2, 99 * time.Millisecond: 11, 101 * time.Millisecond: 16}},
		{"one hangs", func(n int) time.Duration {
			if n > 1 {
				return time.Minute
			}
			return 2 * time.Millisecond
		}, map[time.Duration]int{0: 2, 3 * time.Millisecond: 2, 9 * time.Millisecond: 2, 10 * time.Millisecond: 3, 20 * time.Millisecond: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crowd := newCrowd(t, func(ctx context.Context, n int) error { return after(c.takes(n), nil)(ctx, n) })
				crowd.processors, crowd.maxDials = 1, 16
				crowd.limit = func() time.Duration { return time.Hour }
				crowd.many(200)
				began := time.Now()
				for _, at := range slices.Sorted(maps.Keys(c.atOnce)) {
					time.Sleep(at - time.Since(began))
					synctest.Wait()
					crowd.direct.mu.Lock()
					if got := crowd.line.dialing; got != c.atOnce[at] {
						t.Errorf("after %v %d connections are being made, want %d", at, got, c.atOnce[at])
					}
					crowd.direct.mu.Unlock()
				}
				crowd.finish()
			})
		})
	}
}

// Who goes away leaves the line. What it got at that moment is for the next one.
func TestWaitLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, hung)
		defer c.finish()
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		for i := range 4 {
			c.come(ctx, fmt.Sprint(i), false)
		}
		c.come(t.Context(), "last", false)
		time.Sleep(time.Millisecond)
		conn, _ := net.Pipe()
		c.put(newDirectConn(c.direct, conn, conn))
		cancel(gone)
		synctest.Wait()
		c.direct.mu.Lock()
		waits := c.line.waits.Len()
		c.direct.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.errs) < 4 || waits != 5-len(c.errs) {
			t.Fatalf("%v; %d wait", c.order, waits)
		}
		var behind *behindError
		for _, name := range []string{"1", "2", "3"} {
			if !errors.Is(c.errs[name], gone) || !errors.As(c.errs[name], &behind) {
				t.Errorf("%s: %v", name, c.errs[name])
			}
		}
		if c.errs["0"] != nil && c.errs["last"] != nil {
			t.Error("the connection is lost")
		}
	})
}

// A wait that ends before anything came of the endpoint is judged like any.
func TestWaitLeftInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, hung)
		ctx, cancel := context.WithTimeoutCause(t.Context(), crowdLimit/2, errHeader)
		defer cancel()
		c.come(ctx, "only", false)
		c.finish()
		if c.errs["only"] != errHeader {
			t.Error(c.errs["only"])
		}
	})
}

// Who waits when the connections are retired goes to their successors, and has all
// of its time there. What was being made is closed.
func TestWaitOfRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newCrowd(t, after(600*time.Millisecond, nil)), newCrowd(t, hung)
		old.successor = func() (*direct, error) { return next.direct, nil }
		old.many(3)
		time.Sleep(500 * time.Millisecond)
		old.retire()
		old.finish()
		for name, err := range old.errs {
			since := old.ended[name] - 500*time.Millisecond
			if err == nil || since < crowdLimit || since > crowdLimit+crowdLimit/graceShare {
				t.Errorf("%s: %v after %v", name, err, old.ended[name])
			}
		}
		if len(old.idle) != 0 || len(old.conns) != 0 || old.dials != 2 || next.dials != 3 && next.dials != 2 {
			t.Errorf("%d idle, %d given; %d and %d dials", len(old.idle), len(old.conns), old.dials, next.dials)
		}
		next.finish()
	})
}

// Who comes after the connections were retired, or goes to their successors late,
// is served there; where there are none, because the endpoint is gone, the old way
// is good for what is under way.
func TestWaitAfterRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newCrowd(t, after(100*time.Millisecond, nil)), newCrowd(t, after(100*time.Millisecond, nil))
		old.successor = func() (*direct, error) { return next.direct, nil }
		old.maxDials = 0
		old.come(t.Context(), "late", false)
		time.Sleep(crowdLimit)
		old.retire()
		time.Sleep(100 * time.Millisecond)
		old.want("late conn")
		old.come(t.Context(), "after", true)
		time.Sleep(100 * time.Millisecond)
		old.want("after conn")
		if old.dials != 0 || next.dials != 2 {
			t.Errorf("%d and %d dials", old.dials, next.dials)
		}
		last := newCrowd(t, after(100*time.Millisecond, nil))
		last.successor = func() (*direct, error) { return last.direct, nil }
		last.retire()
		last.come(t.Context(), "gone", false)
		time.Sleep(100 * time.Millisecond)
		last.want("gone conn")
		for _, c := range []*crowd{old, next, last} {
			c.finish()
		}
	})
}

// Requests come and go in any order, over few connections to a real server: none
// waits for ever, and nothing is left.
func TestWaitAtOnce(t *testing.T) {
	s := newSocket(t)
	s.serve(t, echo)
	var all sync.WaitGroup
	for c := range 32 {
		all.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if (c+i)%3 == 0 {
					time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
				}
				if i == 25 && c%8 == 0 {
					s.closeIdle()
				}
				conn, _, err := s.wait(ctx, (c+i)%5 == 0)
				switch {
				case err != nil && ctx.Err() == nil:
					t.Error(err)
				case err == nil && i%7 == 0:
					conn.Close()
				case err == nil:
					s.put(conn)
				}
				cancel()
			}
		})
	}
	all.Wait()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		waits, dialing := s.line.waits.Len(), s.line.dialing
		s.mu.Unlock()
		if waits == 0 && dialing == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d wait, %d connections are being made", waits, dialing)
		}
	}
}

// closeIdle closes idle connections under the pool's feet.
func (s *socket) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.idle {
		_ = c.Close()
	}
}
