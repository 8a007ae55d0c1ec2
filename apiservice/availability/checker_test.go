package availability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// server is a target with an answer that a test sets.
type server struct {
	answer atomic.Pointer[error]
	probes atomic.Int64
}

func (s *server) set(err error) { s.answer.Store(&err) }

func (s *server) probe(ctx context.Context) error {
	s.probes.Add(1)
	err := *s.answer.Load()
	if errors.Is(err, errHang) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

var (
	errHang = errors.New("hang")
	errBad  = errors.New("bad status")
)

// check runs body with a running Checker over one target, in fake time.
func check(t *testing.T, first error, body func(c *Checker, s *server)) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.set(first)
		c := New(Config{OnChange: func(string, Verdict) {}})
		c.Set([]Target{{ID: "a", Probe: s.probe}})
		ctx, cancel := context.WithCancel(t.Context())
		go c.Run(ctx)
		synctest.Wait()
		body(c, s)
		cancel()
		synctest.Wait()
	})
}

func TestFirstProbeDecides(t *testing.T) {
	check(t, nil, func(c *Checker, s *server) {
		if v := c.Verdict("a"); !v.Known || !v.Healthy {
			t.Errorf("after a good probe: %+v", v)
		}
	})
	check(t, errBad, func(c *Checker, s *server) {
		if v := c.Verdict("a"); !v.Known || v.Healthy || !errors.Is(v.Err, errBad) {
			t.Errorf("after a bad probe: %+v", v)
		}
	})
}

func TestOneFailureIsNotEnough(t *testing.T) {
	check(t, nil, func(c *Checker, s *server) {
		s.set(errBad)
		time.Sleep(5*time.Second + 100*time.Millisecond)
		if !c.Verdict("a").Healthy {
			t.Fatal("unhealthy after one failure")
		}
		s.set(nil)
		time.Sleep(time.Minute)
		if v := c.Verdict("a"); !v.Healthy {
			t.Fatalf("a single failure stuck: %+v", v)
		}
		s.set(errBad)
		time.Sleep(5*time.Second + 2*500*time.Millisecond + 100*time.Millisecond)
		if v := c.Verdict("a"); v.Healthy || v.Err == nil {
			t.Fatalf("still healthy after three failures: %+v", v)
		}
	})
}

func TestRefusedConnectionIsDecisive(t *testing.T) {
	check(t, nil, func(c *Checker, s *server) {
		s.set(fmt.Errorf("dial: %w", syscall.ECONNREFUSED))
		c.Suspect("a")
		time.Sleep(100 * time.Millisecond)
		if c.Verdict("a").Healthy {
			t.Error("healthy although no process listens")
		}
	})
}

func TestSilentServerFallsAndRises(t *testing.T) {
	check(t, nil, func(c *Checker, s *server) {
		s.set(errHang)
		time.Sleep(7800 * time.Millisecond)
		if v := c.Verdict("a"); v.Healthy {
			t.Fatalf("a silent server is healthy after 8 s: %+v", v)
		}
		s.set(nil)
		time.Sleep(1900 * time.Millisecond)
		if v := c.Verdict("a"); !v.Healthy || v.Err != nil {
			t.Fatalf("not healthy 2 s after it came back: %+v", v)
		}
	})
}

// A target may have a schedule of its own, which may change while it is checked.
func TestScheduleOfTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.set(nil)
		var reported []bool
		target := Target{
			ID: "a", Probe: s.probe, Schedule: Schedule{Interval: 100 * time.Millisecond, Suspect: 10 * time.Millisecond, Fall: 5, Rise: 4},
			OnChange: func(v Verdict) { reported = append(reported, v.Healthy) },
		}
		c := New(Config{OnChange: func(string, Verdict) {}})
		c.Set([]Target{target})
		ctx, cancel := context.WithCancel(t.Context())
		go c.Run(ctx)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := s.probes.Load(); n < 10 || n > 12 {
			t.Errorf("%d probes in a second", n)
		}
		s.set(errBad)
		time.Sleep(138 * time.Millisecond) // at most 100, and 4 more
		synctest.Wait()
		if c.Verdict("a").Healthy != (s.probes.Load() < 15) {
			t.Errorf("%+v after %d probes", c.Verdict("a"), s.probes.Load())
		}
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if c.Verdict("a").Healthy {
			t.Error("five failures are not enough")
		}
		s.set(nil)
		target.Schedule.Rise = 1
		c.Set([]Target{target})
		time.Sleep(11 * time.Millisecond)
		synctest.Wait()
		if !c.Verdict("a").Healthy || len(reported) != 3 || !reported[0] || reported[1] || !reported[2] {
			t.Errorf("a changed schedule does not hold: %+v, reported %v", c.Verdict("a"), reported)
		}
		cancel()
		synctest.Wait()
	})
}

// A target that is suspected all the time is probed at once, then at the interval of suspect
// targets while it passes.
func TestSuspectStormIsBounded(t *testing.T) {
	check(t, nil, func(c *Checker, s *server) {
		time.Sleep(time.Second)
		for range 2 {
			before := s.probes.Load()
			c.Suspect("a")
			synctest.Wait()
			if n := s.probes.Load() - before; n != 1 {
				t.Errorf("%d probes at once", n)
			}
			for range 10000 {
				c.Suspect("a")
				time.Sleep(time.Millisecond)
			}
			if n := s.probes.Load() - before; n < 19 || n > 22 {
				t.Errorf("%d probes in ten seconds of suspicion", n)
			}
			time.Sleep(time.Second)
		}
		s.set(errBad)
		before := s.probes.Load()
		c.Suspect("a")
		synctest.Wait()
		if n := s.probes.Load() - before; n != 1 {
			t.Errorf("%d probes at once when it fails", n)
		}
	})
}

// Suspect does not change the schedule of a target after a failed probe; Hurry probes it at
// once.
func TestFailingIsNotSuspect(t *testing.T) {
	for name, failure := range map[string]error{"refused": syscall.ECONNREFUSED, "broken": io.ErrUnexpectedEOF} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Config{OnChange: func(string, Verdict) {}})
				var probes atomic.Int64
				var fails atomic.Bool
				fails.Store(true)
				c.Set([]Target{{ID: "a", Probe: func(context.Context) error {
					if probes.Add(1); !fails.Load() {
						return nil
					}
					c.Suspect("a")
					return failure
				}}})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); _ = c.Run(ctx) }()
				for range 500 { // others
					time.Sleep(10 * time.Millisecond)
					c.Suspect("a")
				}
				if n := probes.Load(); n < 9 || n > 11 {
					t.Errorf("%d probes in 5 s", n)
				}
				time.Sleep(100 * time.Millisecond) // between two probes
				fails.Store(false)
				before := probes.Load()
				c.Hurry("a")
				synctest.Wait()
				time.Sleep(2 * suspectGap)
				synctest.Wait()
				if n := probes.Load() - before; n != 2 || !c.Verdict("a").Healthy {
					t.Errorf("%d probes when it may be well again: %+v", n, c.Verdict("a"))
				}
				cancel()
				<-ended
			})
		})
	}
}

// Hurry during a probe that fails causes another one.
func TestHurryDuringAFailingProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began []time.Duration
		start := time.Now()
		c := New(Config{OnChange: func(string, Verdict) {}})
		c.Set([]Target{{ID: "a", Probe: func(context.Context) error {
			began = append(began, time.Since(start))
			time.Sleep(100 * time.Millisecond)
			return io.ErrUnexpectedEOF
		}}})
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		time.AfterFunc(550*time.Millisecond, func() { c.Hurry("a") })
		_ = c.Run(ctx)
		if want := []time.Duration{0, 500 * time.Millisecond, 600 * time.Millisecond}; !slices.Equal(began, want) {
			t.Errorf("probes at %v, want %v", began, want)
		}
	})
}

func TestSetReplacesAndForgets(t *testing.T) {
	check(t, nil, func(c *Checker, s *server) {
		other := &server{}
		other.set(errBad)
		c.Set([]Target{{ID: "a", Probe: s.probe}, {ID: "b", Probe: other.probe}})
		synctest.Wait()
		if !c.Verdict("a").Healthy || c.Verdict("b").Healthy || !c.Verdict("b").Known {
			t.Errorf("a %+v, b %+v", c.Verdict("a"), c.Verdict("b"))
		}
		c.Set([]Target{{ID: "b", Version: "2", Probe: s.probe}})
		synctest.Wait()
		if c.Verdict("a").Known || !c.Verdict("b").Healthy {
			t.Errorf("a %+v, b %+v", c.Verdict("a"), c.Verdict("b"))
		}
		n := other.probes.Load()
		time.Sleep(time.Minute)
		if other.probes.Load() != n {
			t.Error("a forgotten target is still probed")
		}
	})
}

// The Verdict of a new target holds until probes change it by its schedule.
func TestVerdictBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := time.Now().Add(-time.Hour)
		s := &server{}
		s.set(errBad)
		c := New(Config{OnChange: func(string, Verdict) {}})
		set := func(version string) {
			c.Set([]Target{{ID: "a", Version: version, Probe: s.probe, Verdict: Verdict{Known: true, Healthy: true, Since: since}}})
		}
		set("1")
		if v := c.Verdict("a"); !v.Healthy || !v.Since.Equal(since) {
			t.Errorf("before the first probe: %+v", v)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.Run(ctx)
		synctest.Wait()
		if v := c.Verdict("a"); !v.Healthy || s.probes.Load() != 1 {
			t.Errorf("one failure is none: %+v after %d probes", v, s.probes.Load())
		}
		time.Sleep(2 * time.Second)
		if v := c.Verdict("a"); v.Healthy {
			t.Errorf("it fell: %+v", v)
		}
		set("1")
		if v := c.Verdict("a"); v.Healthy {
			t.Errorf("it was set again, and what was found is forgotten: %+v", v)
		}
	})
}

// The verdict on an earlier Version is Earlier until a probe confirms or changes it, and
// OnChange reports that.
func TestVerdictOfAnEarlierVersion(t *testing.T) {
	for _, fails := range []error{nil, errBad} {
		synctest.Test(t, func(t *testing.T) {
			since := time.Now().Add(-time.Hour)
			s := &server{}
			s.set(fails)
			var mu sync.Mutex
			reported := map[string][]Verdict{}
			c := New(Config{OnChange: func(id string, v Verdict) {
				mu.Lock()
				defer mu.Unlock()
				reported[id] = append(reported[id], v)
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer synctest.Wait()
			defer cancel()
			go c.Run(ctx)
			synctest.Wait()
			c.Set([]Target{{ID: "new", Version: "2", Probe: s.probe}, {ID: "a", Version: "2", Probe: s.probe, Verdict: Verdict{Known: true, Healthy: true, Since: since}}})
			if v := c.Verdict("a"); !v.Earlier || c.Verdict("new").Earlier {
				t.Errorf("before the first probe: %+v, %+v", v, c.Verdict("new"))
			}
			synctest.Wait()
			if v := c.Verdict("a"); !v.Healthy || v.Earlier != (fails != nil) || !v.Since.Equal(since) {
				t.Errorf("after one probe (%v): %+v", fails, v)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if v := c.Verdict("a"); v.Earlier || v.Healthy != (fails == nil) || v.Since.Equal(since) != (fails == nil) {
				t.Errorf("in the end (%v): %+v", fails, v)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(reported["a"]) != 1 || reported["a"][0].Earlier || len(reported["new"]) != 1 {
				t.Errorf("reported of %+v, want one verdict of each", reported)
			}
		})
	}
}
