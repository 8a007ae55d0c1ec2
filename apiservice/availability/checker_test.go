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

// run runs body with a running Checker of targets, in fake time.
func run(t *testing.T, body func(c *Checker), targets ...Target) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{OnChange: func(string, Verdict) {}})
		c.Set(targets)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.Run(ctx)
		synctest.Wait()
		body(c)
	})
}

// check is run with one target. Its first probe returns first.
func check(t *testing.T, first error, body func(c *Checker, s *server)) {
	t.Helper()
	s := &server{}
	s.set(first)
	run(t, func(c *Checker) { body(c, s) }, Target{ID: "a", Probe: s.probe})
}

// after sleeps and waits for what happens then.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// The first probe decides.
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

// A healthy target is unhealthy after Fall failures.
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

// A refused connection makes a target unhealthy at once: no process listens.
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

// A silent server is unhealthy within 8 s, and healthy 2 s after it answers again.
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

// A target may have its own schedule, which may change while it is checked.
func TestScheduleOfTarget(t *testing.T) {
	s := &server{}
	s.set(nil)
	var reported []bool
	target := Target{
		ID: "a", Probe: s.probe, Schedule: Schedule{Interval: 100 * time.Millisecond, Suspect: 10 * time.Millisecond, Fall: 5, Rise: 4},
		OnChange: func(v Verdict) { reported = append(reported, v.Healthy) },
	}
	run(t, func(c *Checker) {
		after(time.Second)
		if n := s.probes.Load(); n < 10 || n > 12 {
			t.Errorf("%d probes in a second", n)
		}
		s.set(errBad)
		after(158 * time.Millisecond) // at most 100, and 4 more probes
		if c.Verdict("a").Healthy {
			t.Error("healthy after five failures")
		}
		s.set(nil)
		target.Schedule.Rise = 1
		c.Set([]Target{target})
		after(11 * time.Millisecond)
		if !c.Verdict("a").Healthy || !slices.Equal(reported, []bool{true, false, true}) {
			t.Errorf("after a change of the schedule: %+v, reported %v", c.Verdict("a"), reported)
		}
	}, target)
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

// Suspect does not change the schedule of a target after a failed probe; Hurry probes it at once.
func TestFailingIsNotSuspect(t *testing.T) {
	for name, failure := range map[string]error{"refused": syscall.ECONNREFUSED, "broken": io.ErrUnexpectedEOF} {
		t.Run(name, func(t *testing.T) {
			var probes atomic.Int64
			var good atomic.Bool
			var checker atomic.Pointer[Checker]
			run(t, func(c *Checker) {
				checker.Store(c)
				for range 500 {
					time.Sleep(10 * time.Millisecond)
					c.Suspect("a")
				}
				if n := probes.Load(); n < 9 || n > 12 {
					t.Errorf("%d probes in 5 s", n)
				}
				time.Sleep(100 * time.Millisecond) // between two probes
				good.Store(true)
				before := probes.Load()
				c.Hurry("a")
				synctest.Wait()
				after(2 * suspectGap)
				if n := probes.Load() - before; n != 2 || !c.Verdict("a").Healthy {
					t.Errorf("%d probes after Hurry: %+v", n, c.Verdict("a"))
				}
			}, Target{ID: "a", Probe: func(context.Context) error {
				if probes.Add(1); good.Load() {
					return nil
				}
				if c := checker.Load(); c != nil {
					c.Suspect("a")
				}
				return failure
			}})
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

// Set replaces targets of another Version and ends the probes of those that are missing.
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
			t.Error("a removed target is still probed")
		}
	})
}

// The Verdict of a new target holds until probes change it by its schedule.
func TestVerdictBefore(t *testing.T) {
	since := time.Now().Add(-time.Hour)
	s := &server{}
	s.set(errBad)
	target := Target{ID: "a", Version: "1", Probe: s.probe, Verdict: Verdict{Known: true, Healthy: true, Since: since}}
	c := New(Config{})
	if c.Set([]Target{target}); !c.Verdict("a").Healthy || !c.Verdict("a").Since.Equal(since) {
		t.Errorf("before the first probe: %+v", c.Verdict("a"))
	}
	run(t, func(c *Checker) {
		if v := c.Verdict("a"); !v.Healthy || s.probes.Load() != 1 {
			t.Errorf("after one failure: %+v, %d probes", v, s.probes.Load())
		}
		after(2 * time.Second)
		for range 2 {
			if v := c.Verdict("a"); v.Healthy {
				t.Errorf("after Fall failures: %+v", v)
			}
			c.Set([]Target{target})
		}
	}, target)
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

// A target that answers requests stays healthy however long its probes take, and one that answers
// none is unhealthy as before.
func TestProbesOfBusyTargets(t *testing.T) {
	for name, answers := range map[string]bool{"answers requests": true, "answers none": false} {
		t.Run(name, func(t *testing.T) {
			s, count := &server{}, atomic.Uint64{}
			s.set(nil)
			run(t, func(c *Checker) {
				s.set(errHang)
				for range 600 {
					time.Sleep(100 * time.Millisecond)
					if answers {
						count.Add(1)
					}
				}
				if v := c.Verdict("a"); v.Healthy != answers {
					t.Errorf("after a minute of probes without an answer: %+v", v)
				}
				s.set(errBad)
				time.Sleep(10 * time.Second)
				if v := c.Verdict("a"); v.Healthy {
					t.Errorf("after probes with errors: %+v", v)
				}
			}, Target{ID: "a", Probe: s.probe, Answers: count.Load})
		})
	}
}

// A beat that is late says that this process is busy, and so does one that is still to come long after
// its time.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(change func(p *pulse)) bool {
			p := startPulse()
			time.Sleep(3*beat + beat/2)
			p.mu.Lock()
			change(p)
			p.mu.Unlock()
			time.Sleep(beat)
			return p.stop()
		}
		if late(func(*pulse) {}) {
			t.Error("beats in time are late")
		}
		if !late(func(p *pulse) { p.due = p.due.Add(-time.Second) }) {
			t.Error("a late beat is not")
		}
		if !late(func(p *pulse) { p.timer.Stop(); p.due = p.due.Add(-time.Second) }) {
			t.Error("a missing beat is not")
		}
	})
}

// A beat that fires while the pulse stops is the last one.
func TestStoppedPulseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPulse()
		p.mu.Lock()
		time.Sleep(beat) // fire waits for the lock
		p.stopped = true
		p.due = time.Time{}
		p.mu.Unlock()
		synctest.Wait()
		if time.Sleep(3 * beat); !p.due.IsZero() {
			t.Error("it beats after its end")
		}
	})
}
