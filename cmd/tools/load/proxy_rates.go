package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// defaultTurn is how long one front has its turn before the next one does: short, so
// that whatever else the machine does meets all of them alike. What a proxy does
// seldom is seen in longer ones only. Of those, a gateway that waits for more than five
// seconds gives memory back meanwhile, and has to take it again.
const defaultTurn = 250 * time.Millisecond

// loadOf is a load of the usual kind.
func (r *proxyRun) loadOf(protocol, name string, size int64) *load {
	return &load{protocol: protocol, fields: requestFields(proxyObject(0, name), r.token), want: size, atOnce: r.o.atOnce}
}

// measured is what was measured of one front: all of it, and turn by turn.
type measured struct {
	all   sample
	turns []sample
}

// turns lets everybody take turns, as many as fit into the time that each has,
// and returns what each measured.
func (r *proxyRun) turns(ctx context.Context, what string, l *load, fronts []*front) (map[*front]*measured, error) {
	results := map[*front]*measured{}
	drivers := map[*front]*driver{}
	for _, f := range fronts {
		d, err := l.drive(ctx, f)
		if err != nil {
			return nil, err
		}
		defer d.close()
		if _, err := r.turn(ctx, d); err != nil { // warms up, and does not count
			return nil, err
		}
		results[f], drivers[f] = &measured{}, d
	}
	turns := max(1, int(time.Duration(r.o.rounds)*r.o.time/r.o.turn))
	wait := func() {}
	if slices.Contains(fronts, r.gateway) && r.o.profile != "" {
		wait = r.profile(ctx, what, time.Duration(turns*len(fronts))*r.o.turn)
	}
	for turn := range turns {
		for i := range fronts {
			f := fronts[(turn+i)%len(fronts)] // nobody comes always after the same
			s, err := r.turn(ctx, drivers[f])
			if err != nil {
				return nil, err
			}
			m := results[f]
			m.all, m.turns = m.all.add(s), append(m.turns, s)
		}
	}
	wait()
	for _, f := range fronts {
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

// spread is the median of a figure over all turns, and the quarters of the turns
// between which it lies.
type spread struct {
	Half float64 `json:"median"`
	Low  float64 `json:"quarterBelow"`
	High float64 `json:"quarterAbove"`
}

// spreadOf compares two fronts turn by turn.
func spreadOf(a, b *measured, of func(a, b sample) float64) spread {
	var all []float64
	for i := range a.turns {
		all = append(all, of(a.turns[i], b.turns[i]))
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[min(int(q*float64(len(all))), len(all)-1)] }
	return spread{at(0.5), at(0.25), at(0.75)}
}

// rates measures how many requests pass, and how much work one is.
func (r *proxyRun) rates(ctx context.Context) error {
	more, stop, err := r.startSeconds(ctx, partRate)
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
			results, err := r.turns(ctx, what, r.loadOf(protocol, body.name, int64(body.size)), fronts)
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
	more, stop, err := r.startSeconds(ctx, partLatency)
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
		results, err := r.turns(ctx, what, l, fronts)
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
