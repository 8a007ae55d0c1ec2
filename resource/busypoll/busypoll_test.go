package busypoll

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"portico/resource/netround"
)

// patience is for what takes no time on a machine that does nothing else.
const patience = 20 * time.Second

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// processors gives the process so many until the test ends.
func processors(t testing.TB, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// start runs a Poller until the test ends.
func start(t *testing.T, length time.Duration) *Poller {
	t.Helper()
	processors(t, 1)
	p, err := New(Config{For: length, Logger: slog.New(slog.DiscardHandler)})
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not return")
		}
	})
	return p
}

// A Poller looks for work after each sign of traffic, for its time, and sleeps
// otherwise.
func TestPollerLooksAndSleeps(t *testing.T) {
	p := start(t, time.Millisecond)
	eventually(t, "it sleeps at first", p.asleep.Load)
	if n := p.rounds.Load(); n > 1 {
		t.Errorf("looked %d times before there was any traffic", n)
	}
	for range 10 {
		before := p.rounds.Load()
		p.Touch()
		eventually(t, "it looks", func() bool { return p.rounds.Load() > before })
		eventually(t, "it sleeps again", p.asleep.Load)
	}
}

// While there is traffic it does not sleep.
func TestPollerStaysAwake(t *testing.T) {
	p := start(t, Max)
	p.length = time.Hour
	p.Touch()
	eventually(t, "it looks", func() bool { return p.rounds.Load() > 1000 })
	if p.asleep.Load() {
		t.Error("it sleeps")
	}
}

// Signs that come while it falls asleep, from everywhere, wake it, and nobody who
// gives one waits.
func TestTouchesFromEverywhere(t *testing.T) {
	p := start(t, time.Microsecond)
	var touching sync.WaitGroup
	for range 8 {
		touching.Go(func() {
			for range 2000 {
				p.Touch()
			}
		})
	}
	touching.Wait()
	eventually(t, "it sleeps", p.asleep.Load)
	before := p.rounds.Load()
	p.Touch()
	eventually(t, "it looks once more", func() bool { return p.rounds.Load() > before })
}

// A process that gets more processors sleeps as usual, until it has one again.
func TestPollerIsForOneProcessor(t *testing.T) {
	p := start(t, Max)
	p.length = time.Hour
	p.Touch()
	eventually(t, "it looks", func() bool { return p.rounds.Load() > 2*reviewRounds })
	runtime.GOMAXPROCS(2)
	eventually(t, "it sleeps", func() bool {
		before := p.rounds.Load()
		p.Touch()
		time.Sleep(10 * time.Millisecond)
		return p.rounds.Load() == before
	})
	runtime.GOMAXPROCS(1)
	before := p.rounds.Load()
	eventually(t, "it looks again", func() bool { p.Touch(); return p.rounds.Load() > before })
}

func TestNilPoller(t *testing.T) {
	var p *Poller
	p.Touch()
	if err := p.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	processors(t, 1)
	for _, length := range []time.Duration{0, -time.Second, Max + 1} {
		if p, err := New(Config{For: length}); err == nil || !strings.Contains(err.Error(), "no more than 10ms") {
			t.Errorf("%v: got %v, %v", length, p, err)
		}
	}
	if !netround.Supported {
		if _, err := New(Config{For: Max}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("got %v", err)
		}
		return
	}
	registry := prometheus.NewRegistry()
	p, err := New(Config{For: Max, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	p.rounds.Store(7)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if got := find(families, "portico_busy_polls_total"); got != 7 {
		t.Errorf("portico_busy_polls_total is %v", got)
	}
	if _, err := New(Config{For: Max, Registry: registry}); err == nil {
		t.Error("a second one counts in the same registry")
	}
	runtime.GOMAXPROCS(2)
	if p, err := New(Config{For: Max}); err == nil || !strings.Contains(err.Error(), "this one has 2; start it with GOMAXPROCS=1") {
		t.Errorf("with two processors: %v, %v", p, err)
	}
}

func find(families []*dto.MetricFamily, name string) float64 {
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}

func BenchmarkTouch(b *testing.B) {
	p := &Poller{}
	for b.Loop() {
		p.Touch()
	}
}
