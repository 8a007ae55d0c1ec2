package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// loadOf is a load of the usual kind.
func (r *proxyRun) loadOf(protocol, name string, size int64) *load {
	return &load{
		protocol: protocol, fields: requestFields(proxyObject(0, name), r.token), want: size, atOnce: r.o.atOnce, time: r.o.time,
	}
}

// turns lets everybody take turns and returns what each measured.
func (r *proxyRun) turns(ctx context.Context, what string, l *load, fronts []*front) (map[*front]sample, error) {
	results := map[*front]sample{}
	for round := range r.o.rounds {
		for _, f := range fronts {
			wait := func() {}
			if f == r.gateway && round == 0 && r.o.profile != "" {
				wait = r.profile(ctx, what)
			}
			s, err := l.run(ctx, f)
			wait()
			if err != nil {
				return nil, err
			}
			r.say("%s, %s, round %d of %d: %.0f/s, %.1f µs of CPU each, p50 %v, p99 %v", what, f.name, round+1, r.o.rounds,
				s.rate(), cpuOf(s, f), s.quantile(0.5), s.quantile(0.99))
			results[f] = results[f].add(s)
		}
	}
	return results, nil
}

// cpuOf is the CPU of the proxy for one request, in microseconds.
func cpuOf(s sample, f *front) float64 {
	return float64(s.cpu[f.name].Microseconds()) / float64(max(s.ops, 1))
}

// rates measures how many requests pass, and how much work one is.
func (r *proxyRun) rates(ctx context.Context) error {
	for _, protocol := range r.o.protocols {
		for _, body := range []struct {
			name string
			size int
		}{{"small", smallObject}, {"large", r.o.size}} {
			what := fmt.Sprintf("%s %dB", protocol, body.size)
			results, err := r.turns(ctx, what, r.loadOf(protocol, body.name, int64(body.size)), r.all[1:])
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			bare := cpuOf(results[r.bare], r.bare)
			for _, f := range r.all[1:] {
				s := results[f]
				r.report.Rates = append(r.report.Rates, proxyRate{
					Protocol: protocol, Bytes: body.size, Proxy: f.name, PerSecond: s.rate(), CPU: cpuOf(s, f), Ratio: bare / cpuOf(s, f),
					RateRatio: s.rate() / results[r.bare].rate(),
				})
			}
		}
	}
	return nil
}

// latencies measures how long requests take at a fixed rate.
func (r *proxyRun) latencies(ctx context.Context) error {
	for _, protocol := range r.o.protocols {
		what := fmt.Sprintf("%s at %d/s", protocol, r.o.rate)
		l := r.loadOf(protocol, "large", int64(r.o.size))
		l.rate = r.o.rate
		results, err := r.turns(ctx, what, l, r.all)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		direct := results[r.direct]
		for _, f := range r.all {
			s := results[f]
			r.report.Latencies = append(r.report.Latencies, proxyLatency{
				Protocol: protocol, Proxy: f.name, PerSecond: s.rate(), latency: *latencies(s), CPU: cpuOf(s, f),
				AddedHalf: milliseconds(s.quantile(0.5) - direct.quantile(0.5)), AddedMost: milliseconds(s.quantile(0.99) - direct.quantile(0.99)),
			})
		}
	}
	return nil
}

// profile takes a CPU profile of the gateway while the caller works.
func (r *proxyRun) profile(ctx context.Context, what string) (wait func()) {
	if err := os.MkdirAll(r.o.profile, 0o755); err != nil {
		r.say("no profile: %v", err)
		return func() {}
	}
	p := &profiler{dir: r.o.profile, say: r.say}
	var done sync.WaitGroup
	done.Go(func() {
		res, err := r.stack.admin.open(ctx, 0, request{path: fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(r.o.time.Seconds())))})
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
