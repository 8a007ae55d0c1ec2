package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// proxyReport is what is printed at the end, as tables or as JSON.
type proxyReport struct {
	Platform   string         `json:"platform"`
	Processors int            `json:"processors"`
	Workers    int            `json:"workers"`
	Rounds     int            `json:"rounds"`
	Rates      []proxyRate    `json:"rates,omitempty"`
	Latencies  []proxyLatency `json:"latencies,omitempty"`
	Watches    []proxyWatches `json:"watches,omitempty"`
	Groups     []proxyGroups  `json:"groups,omitempty"`
	Notes      []string       `json:"notes,omitempty"`
}

// proxyRate is what one proxy does of one load, and the CPU that a request takes
// of it, in microseconds. Ratio is the bare ReverseProxy's CPU by this one's,
// RateRatio this one's rate by the bare one's, each turn's with the other's turn
// beside it.
type proxyRate struct {
	Protocol  string  `json:"protocol"`
	Bytes     int     `json:"bytes"`
	Proxy     string  `json:"proxy"`
	PerSecond float64 `json:"perSecond"`
	RateRatio spread  `json:"ratioOfRates"`
	CPU       float64 `json:"cpuMicroseconds"`
	Ratio     spread  `json:"ratioOfCPU"`
}

// proxyLatency is how long requests took at a fixed rate, from when they were to
// be sent, and how much longer than without a proxy, in milliseconds: each window's
// median and slowest hundredth less those of the direct window beside it, and the
// slowest hundredth of all requests less that of all direct ones.
type proxyLatency struct {
	Protocol  string  `json:"protocol"`
	Proxy     string  `json:"proxy"`
	PerSecond float64 `json:"perSecond"`
	latency
	AddedHalf spread `json:"addedP50"`
	AddedMost spread `json:"addedP99"`
	// AddedMostOfAll has in it what nobody could help: a virtual machine's host.
	AddedMostOfAll float64 `json:"addedP99OfAll"`
	CPU            float64 `json:"cpuMicroseconds"`
}

// proxyWatches is what an idle watch takes of the anonymous memory of a proxy,
// in kilobytes (1,000 bytes), with garbage and, where that can be had, without.
type proxyWatches struct {
	Proxy   string  `json:"proxy"`
	Watches int     `json:"watches"`
	KB      float64 `json:"kilobytes"`
	CleanKB float64 `json:"kilobytesWithoutGarbage"`
	IdleCPU float64 `json:"processors"`
}

// proxyGroups is what the gateway does with so many groups registered. IdleCPU is
// what it takes when nobody asks, which is mostly checks of servers; CPU, what a
// request takes beyond that.
type proxyGroups struct {
	Groups       int        `json:"groups"`
	NotModified  proxyTimes `json:"discoveryNotModified"`
	GroupVersion proxyTimes `json:"discoveryGroupVersion"`
	Proxied      proxyTimes `json:"proxied"`
	CPU          float64    `json:"cpuMicroseconds"`
	Ratio        float64    `json:"ratioOfCPU"`
	IdleCPU      float64    `json:"idleProcessors"`
}

// proxyTimes are in milliseconds.
type proxyTimes struct {
	Half float64 `json:"p50"`
	Most float64 `json:"p99"`
}

// percent and signed say the median, and half of the windows around it.
func (s spread) percent() string {
	return fmt.Sprintf("%.0f %% (%.0f–%.0f)", 100*s.Half, 100*s.Low, 100*s.High)
}

func (s spread) signed() string { return fmt.Sprintf("%+.2f (%+.2f to %+.2f)", s.Half, s.Low, s.High) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func newProxyReport(o *proxyOptions) *proxyReport {
	return &proxyReport{Platform: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.NumCPU(), Workers: o.atOnce, Rounds: o.rounds}
}

func (r *proxyReport) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *proxyReport) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// print writes the report for people.
func (r *proxyReport) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d processors, %s; %d requests at a time; %d rounds in turn\n", r.Processors, r.Platform, r.Workers, r.Rounds)
	if len(r.Rates) > 0 {
		t := table(w, "protocol, answer", "proxy", "requests/s", "of ReverseProxy", "CPU of one, µs", "ReverseProxy's by it")
		for _, l := range r.Rates {
			fmt.Fprintf(t, "%s, %d B\t%s\t%.0f\t%s\t%.1f\t%s\n", l.Protocol, l.Bytes, l.Proxy, l.PerSecond, l.RateRatio.percent(), l.CPU, l.Ratio.percent())
		}
		t.Flush()
	}
	if len(r.Latencies) > 0 {
		t := table(w, "at a fixed rate", "proxy", "requests/s", "p50, p99, max, ms", "added p50, ms", "added p99, ms", "of all", "CPU of one, µs")
		for _, l := range r.Latencies {
			fmt.Fprintf(t, "%s\t%s\t%.0f\t%.2f, %.2f, %.2f\t%s\t%s\t%+.2f\t%.1f\n", l.Protocol, l.Proxy, l.PerSecond, l.Half, l.Most, l.Max, l.AddedHalf.signed(), l.AddedMost.signed(), l.AddedMostOfAll, l.CPU)
		}
		t.Flush()
	}
	if len(r.Watches) > 0 {
		t := table(w, "idle watches", "proxy", "KB each (RssAnon)", "without garbage", "processors, all together")
		for _, l := range r.Watches {
			fmt.Fprintf(t, "%d\t%s\t%.1f\t%.1f\t%.3f\n", l.Watches, l.Proxy, l.KB, l.CleanKB, l.IdleCPU)
		}
		t.Flush()
	}
	if len(r.Groups) > 0 {
		t := table(w, "groups registered", "304 of /apis: p50, p99, ms", "/apis/G/V", "proxied", "CPU of one proxied more, µs", "ReverseProxy's by it", "processors when idle")
		for _, l := range r.Groups {
			fmt.Fprintf(t, "%d\t%.3f, %.3f\t%.3f, %.3f\t%.3f, %.3f\t%.1f\t%.0f %%\t%.3f\n", l.Groups, l.NotModified.Half, l.NotModified.Most,
				l.GroupVersion.Half, l.GroupVersion.Most, l.Proxied.Half, l.Proxied.Most, l.CPU, 100*l.Ratio, l.IdleCPU)
		}
		t.Flush()
	}
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, "note: "+n)
	}
}
