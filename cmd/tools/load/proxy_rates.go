package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// defaultTurn is how long one front has its turn before the next one does: short, so
// that whatever else the machine does meets all of them alike, and so that none waits
// for five seconds, after which a gateway gives memory back.
const defaultTurn = 250 * time.Millisecond

// spent is how the time of a measurement is spent, of each of those who take part.
type spent struct {
	// warmUp does not count: who collects garbage takes the memory that it needs for
	// that. One turn at least.
	warmUp time.Duration
	counts time.Duration // in turns
	// window is how much of it is compared at a time, in as many turns as that takes,
	// one at least.
	window time.Duration
}

// briefly is for what shows in each turn.
func (r *proxyRun) briefly() spent {
	return spent{counts: time.Duration(r.o.rounds) * r.o.time}
}

// lasting is for what a collection of garbage shows in, which is not in each turn.
func (r *proxyRun) lasting() spent {
	return spent{warmUp: r.o.lasting / 2, counts: r.o.lasting, window: r.o.window}
}

// turnsOf is how many of them a time has.
func (r *proxyRun) turnsOf(d time.Duration) int { return max(1, int(d/r.o.turn)) }

// loadOf is a load of the usual kind.
func (r *proxyRun) loadOf(protocol, name string, size int64) *load {
	return &load{protocol: protocol, fields: requestFields(proxyObject(0, name), r.token), want: size, atOnce: r.o.atOnce}
}

// measured is what was measured of one front: all of it, and window by window.
type measured struct {
	all     sample
	windows []sample
	open    int // turns that the last one has; 0: all of its turns
}

// add adds what was measured in a turn to a window that so many turns have.
func (m *measured) add(s sample, perWindow int) {
	m.all = m.all.add(s)
	if m.open == 0 {
		m.windows = append(m.windows, sample{})
	}
	last := &m.windows[len(m.windows)-1]
	*last = last.add(s)
	m.open = (m.open + 1) % perWindow
}

// close leaves out a window that has not all of its turns, unless it is the only one.
func (m *measured) close() {
	if m.open > 0 && len(m.windows) > 1 {
		m.windows = m.windows[:len(m.windows)-1]
	}
}

// turns lets everybody take turns, as many as fit into the time that each has,
// and returns what each measured.
func (r *proxyRun) turns(ctx context.Context, what string, l *load, fronts []*front, each spent) (map[*front]*measured, error) {
	results := map[*front]*measured{}
	drivers := map[*front]*driver{}
	for _, f := range fronts {
		d, err := l.drive(ctx, f)
		if err != nil {
			return nil, err
		}
		defer d.close()
		results[f], drivers[f] = &measured{}, d
	}
	before, turns := r.turnsOf(each.warmUp), r.turnsOf(each.counts)
	wait := func() {}
	for turn := range before + turns {
		if turn == before && slices.Contains(fronts, r.gateway) && r.o.profile != "" {
			wait = r.profile(ctx, what, r.o.turn*time.Duration(turns*len(fronts)))
		}
		for i := range fronts {
			f := fronts[(turn+i)%len(fronts)] // nobody comes always after the same
			s, err := r.turn(ctx, drivers[f])
			if err != nil {
				return nil, err
			}
			if turn >= before {
				results[f].add(s, r.turnsOf(each.window))
			}
		}
	}
	wait()
	for _, f := range fronts {
		results[f].close()
		s := results[f].all
		r.say("%s, %s, %d turns: %.0f/s, %.1f µs of CPU each, p50 %v, p99 %v", what, f.name, turns,
			s.rate(), cpuOf(s, f), s.quantile(0.5), s.quantile(0.99))
	}
	return results, nil
}

// turn is one front's, for which the load's side has no garbage to collect.
func (r *proxyRun) turn(ctx context.Context, d *driver) (sample, error) {
	if err := r.prefer(d.f); err != nil {
		return sample{}, fmt.Errorf("schedule %s: %w", d.f.name, err)
	}
	runtime.GC()
	if err := r.cleanServer(ctx); err != nil {
		return sample{}, err
	}
	return d.turn(ctx, r.o.turn)
}

// cleanServer has the server collect its garbage.
func (r *proxyRun) cleanServer(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.backend.Address+collectPath, nil)
	if err != nil {
		return err
	}
	res, err := r.server.Do(req)
	if err != nil {
		return fmt.Errorf("have the server collect garbage: %w", err)
	}
	_, _ = io.Copy(io.Discard, res.Body) // there is none
	return res.Body.Close()
}

// cpuOf is the CPU of the proxy for one request, in microseconds.
func cpuOf(s sample, f *front) float64 {
	return float64(s.cpu[f.name]) / float64(time.Microsecond) / float64(max(s.ops, 1))
}

// spread is the median of a figure over all windows, and the quarters of the windows
// between which it lies.
type spread struct {
	Half float64 `json:"median"`
	Low  float64 `json:"quarterBelow"`
	High float64 `json:"quarterAbove"`
}

// spreadOf compares two fronts window by window.
func spreadOf(a, b *measured, of func(a, b sample) float64) spread {
	var all []float64
	for i := range a.windows {
		all = append(all, of(a.windows[i], b.windows[i]))
	}
	slices.Sort(all)
	at := func(q float64) float64 { // between two of them, if it is
		below, rest := math.Modf(q * float64(len(all)-1))
		i := int(below)
		return all[i] + rest*(all[min(i+1, len(all)-1)]-all[i])
	}
	return spread{at(0.5), at(0.25), at(0.75)}
}

// rates measures how many requests pass, and how much work one is.
func (r *proxyRun) rates(ctx context.Context) error {
	more, stop, err := r.startSeconds(ctx)
	if err != nil {
		return err
	}
	defer stop()
	fronts := append(slices.Clone(r.all[1:]), more...)
	for _, protocol := range r.o.protocols {
		for _, body := range []struct {
			name string
			size int
		}{{"small", smallObject}, {"large", r.o.size}} {
			what := fmt.Sprintf("%s %dB", protocol, body.size)
			results, err := r.turns(ctx, what, r.loadOf(protocol, body.name, int64(body.size)), fronts, r.briefly())
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			for _, f := range fronts {
				s := results[f].all
				r.report.Rates = append(r.report.Rates, proxyRate{
					Protocol: protocol, Bytes: body.size, Proxy: f.name, PerSecond: s.rate(), CPU: cpuOf(s, f),
					Ratio:     spreadOf(results[r.bare], results[f], func(bare, own sample) float64 { return cpuOf(bare, r.bare) / cpuOf(own, f) }),
					RateRatio: spreadOf(results[r.bare], results[f], func(bare, own sample) float64 { return own.rate() / bare.rate() }),
				})
			}
		}
	}
	return nil
}

// latencies measures how long requests take at a fixed rate.
func (r *proxyRun) latencies(ctx context.Context) error {
	more, stop, err := r.startSeconds(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if r.o.awake {
		note, sleep := keepAwake()
		defer sleep()
		r.report.note("%s", note)
	}
	fronts := append(slices.Clone(r.all), more...)
	for _, protocol := range r.o.protocols {
		what := fmt.Sprintf("%s at %d/s", protocol, r.o.rate)
		l := r.loadOf(protocol, "large", int64(r.o.size))
		l.rate = r.o.rate
		results, err := r.turns(ctx, what, l, fronts, r.lasting())
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		direct := results[r.direct]
		for _, f := range fronts {
			s := results[f].all
			added := func(q float64) spread {
				return spreadOf(direct, results[f], func(direct, own sample) float64 { return milliseconds(own.quantile(q) - direct.quantile(q)) })
			}
			r.report.Latencies = append(r.report.Latencies, proxyLatency{
				Protocol: protocol, Proxy: f.name, PerSecond: s.rate(), latency: *latencies(s), CPU: cpuOf(s, f),
				AddedHalf: added(0.5), AddedMost: added(0.99),
				AddedMostOfAll: milliseconds(s.quantile(0.99) - direct.all.quantile(0.99)),
			})
		}
	}
	return nil
}

// profile takes a CPU profile of the gateway while the caller works.
func (r *proxyRun) profile(ctx context.Context, what string, length time.Duration) (wait func()) {
	if err := os.MkdirAll(r.o.profile, 0o755); err != nil {
		r.say("no profile: %v", err)
		return func() {}
	}
	p := &profiler{dir: r.o.profile, say: r.say}
	var done sync.WaitGroup
	done.Go(func() {
		res, err := r.stack.admin.open(ctx, 0, request{path: fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(length.Seconds())))})
		p.store(filepath.Base(fileName(what)+"-gateway"), res, err)
	})
	return done.Wait
}

// fileName makes a name of a file of the name of a measurement.
func fileName(what string) string {
	name := []byte(what)
	for i, c := range name {
		if c == ' ' || c == '/' {
			name[i] = '-'
		}
	}
	return string(name)
}
