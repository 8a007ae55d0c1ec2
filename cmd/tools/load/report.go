package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
)

// report is what is printed at the end, as tables or as JSON.
type report struct {
	Setting setting    `json:"setting"`
	Results []result   `json:"results"`
	Memory  []memoryAt `json:"memory,omitempty"`
	Notes   []string   `json:"notes,omitempty"`
}

// setting is what the figures were measured with.
type setting struct {
	Processors  int    `json:"processors"`
	Platform    string `json:"platform"`
	Workers     int    `json:"workers"`
	Connections int    `json:"connections"`
	Objects     int    `json:"objects"`
	Size        int    `json:"objectBytes"`
	Rounds      int    `json:"rounds"`
}

func newReport(o *options) *report {
	return &report{Setting: setting{
		runtime.NumCPU(), runtime.GOOS + "/" + runtime.GOARCH, o.workers, o.connections, o.objects, o.size, o.rounds,
	}}
}

// result is one measurement beside its yardstick and its bar, if it has them.
type result struct {
	What   string  `json:"what"`
	Figure float64 `json:"figure"`
	Unit   string  `json:"unit"`
	// Yardstick is what was measured beside it, in the same unit; Ratio is the
	// share that Figure is of it, and Rounds the lowest and the highest of a
	// round, which tells how quiet the machine was.
	Yardstick       string     `json:"yardstick,omitempty"`
	YardstickFigure float64    `json:"yardstickFigure,omitempty"`
	Ratio           float64    `json:"ratio,omitempty"`
	Rounds          [2]float64 `json:"ratioOfRounds,omitzero"`
	Goal            goal       `json:"goal,omitzero"`
	Latency         *latency   `json:"latencyMilliseconds,omitempty"`
	// CPU is what each process spent on one operation, in microseconds.
	// CPURatio is the yardstick's sum by ours: where all processors are busy
	// that is Ratio, whatever else the machine does.
	CPU          map[string]float64 `json:"cpuMicroseconds,omitempty"`
	YardstickCPU map[string]float64 `json:"yardstickCPUMicroseconds,omitempty"`
	CPURatio     float64            `json:"cpuRatio,omitempty"`
}

// goal is what a result should reach: the bar, then what is aimed at. Shares of
// the yardstick, or megabytes that are not to be exceeded.
type goal struct {
	Bar float64 `json:"bar"`
	Aim float64 `json:"aim"`
}

type latency struct {
	Half float64 `json:"p50"`
	Most float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// memoryAt is the anonymous memory by process at one time, in bytes.
type memoryAt struct {
	When string           `json:"when"`
	Of   map[string]int64 `json:"bytes"`
}

// sizeUnit tells results that should be small from those that should be fast.
const sizeUnit = "MB"

// row is one measurement as it was taken, round by round.
type row struct {
	what, unit string
	figure     func(sample) float64
	ours, yard []sample
	yardstick  string
	goal       goal
}

func (r *report) add(l row) {
	ours := total(l.ours)
	res := result{What: l.what, Figure: l.figure(ours), Unit: l.unit, Goal: l.goal, Latency: latencies(ours), CPU: perOperation(ours)}
	if len(l.yard) > 0 {
		yard := total(l.yard)
		res.Yardstick, res.YardstickFigure, res.YardstickCPU = l.yardstick, l.figure(yard), perOperation(yard)
		res.Ratio = res.Figure / res.YardstickFigure
		if ours := sumOf(res.CPU); ours > 0 {
			res.CPURatio = sumOf(res.YardstickCPU) / ours
		}
		var ratios []float64
		for i := range min(len(l.ours), len(l.yard)) {
			ratios = append(ratios, l.figure(l.ours[i])/l.figure(l.yard[i]))
		}
		res.Rounds = [2]float64{slices.Min(ratios), slices.Max(ratios)}
	}
	r.Results = append(r.Results, res)
}

// addMemory notes what anonymous memory the processes have.
func (r *report) addMemory(when string, of map[string]int64) {
	r.Memory = append(r.Memory, memoryAt{when, of})
}

// addSize is a result that says how many bytes the memory of a process is.
func (r *report) addSize(what string, bytes int64, g goal) {
	r.Results = append(r.Results, result{What: what, Figure: float64(bytes) / 1e6, Unit: sizeUnit, Goal: g})
}

func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func total(samples []sample) sample {
	var t sample
	for _, s := range samples {
		t = t.add(s)
	}
	return t
}

func latencies(s sample) *latency {
	if len(s.latencies) == 0 {
		return nil
	}
	return &latency{milliseconds(s.quantile(0.5)), milliseconds(s.quantile(0.99)), milliseconds(s.quantile(1))}
}

// perOperation is the CPU time by process, without those that had nothing to do
// with it.
func perOperation(s sample) map[string]float64 {
	each := map[string]float64{}
	for name, spent := range s.cpu {
		if us := float64(spent.Microseconds()) / float64(max(s.ops, 1)); us >= 0.05 {
			each[name] = us
		}
	}
	return each
}

func sumOf(cpu map[string]float64) float64 {
	var sum float64
	for _, each := range cpu {
		sum += each
	}
	return sum
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
