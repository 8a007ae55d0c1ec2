package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the output, printed as tables or as JSON.
type report struct {
	Setting setting    `json:"setting"`
	Results []result   `json:"results"`
	Memory  []memoryAt `json:"memory,omitempty"`
	Notes   []string   `json:"notes,omitempty"`
}

// setting is the machine and the flags of a run.
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

// result is a measurement, with its yardstick and its bar if it has them.
type result struct {
	What   string  `json:"what"`
	Figure float64 `json:"figure"`
	Unit   string  `json:"unit"`
	// Yardstick names the yardstick. Ratio is Figure as a share of its figure, which
	// has the same unit; Rounds are the lowest and the highest share of a
	// round, which show how much else the machine did.
	Yardstick       string     `json:"yardstick,omitempty"`
	YardstickFigure float64    `json:"yardstickFigure,omitempty"`
	Ratio           float64    `json:"ratio,omitempty"`
	Rounds          [2]float64 `json:"ratioOfRounds,omitzero"`
	// Bar is the least share of the yardstick, or the most of a figure without one; 0: there is none.
	Bar     float64  `json:"bar,omitzero"`
	Latency *latency `json:"latencyMilliseconds,omitempty"`
	// CPU is the CPU time of each process per operation, in microseconds.
	// CPURatio is the sum of the yardstick divided by the sum of CPU; other
	// work on the machine changes it less than Ratio.
	CPU          map[string]float64 `json:"cpuMicroseconds,omitempty"`
	YardstickCPU map[string]float64 `json:"yardstickCPUMicroseconds,omitempty"`
	CPURatio     float64            `json:"cpuRatio,omitempty"`
}

type latency struct {
	Half float64 `json:"p50"`
	Most float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// memoryAt is the anonymous memory of each process at one time, in bytes.
type memoryAt struct {
	When string           `json:"when"`
	Of   map[string]int64 `json:"bytes"`
}

// row is a measurement by rounds.
type row struct {
	what, unit string
	figure     func(sample) float64
	ours, yard []sample
	yardstick  string
	bar        float64
}

func (r *report) add(l row) {
	ours := total(l.ours)
	res := result{What: l.what, Figure: l.figure(ours), Unit: l.unit, Bar: l.bar, Latency: latencies(ours), CPU: perOperation(ours)}
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

// addMemory adds the anonymous memory of the processes.
func (r *report) addMemory(when string, of map[string]int64) {
	r.Memory = append(r.Memory, memoryAt{when, of})
}

// addFigure adds a result without a yardstick. Less is better.
func (r *report) addFigure(what string, figure float64, unit string, bar float64) {
	r.Results = append(r.Results, result{What: what, Figure: figure, Unit: unit, Bar: bar})
}

// addSize adds the memory of a process as a result.
func (r *report) addSize(what string, bytes int64, bar float64) {
	r.addFigure(what, float64(bytes)/1e6, "MB", bar)
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

// perOperation returns the CPU time per operation of each process, in
// microseconds, without processes below 0.05.
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

// print writes the report as tables.
func (r *report) print(w io.Writer) {
	s := r.Setting
	fmt.Fprintf(w, "\n%d processors, %s; %d requests in flight on %d connections; objects of %d bytes; %d rounds\n",
		s.Processors, s.Platform, s.Workers, s.Connections, s.Size, s.Rounds)
	if len(r.Results) > 0 {
		r.printResults(w)
		r.printCPU(w)
	}
	if len(r.Memory) > 0 {
		r.printMemory(w)
	}
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, "note: "+n)
	}
}

// table starts a table after an empty line.
func table(w io.Writer, columns ...string) *tabwriter.Writer {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	return t
}

func (r *report) printResults(w io.Writer) {
	t := table(w, "measured", "figure", "unit", "yardstick", "", "ratio", "rounds", "bar", "", "p50, p99, max")
	for _, l := range r.Results {
		yard, ratio, rounds, took := "-", "-", "-", "-"
		if l.Yardstick != "" {
			yard = fmt.Sprintf("%.0f", l.YardstickFigure)
			ratio = fmt.Sprintf("%.1f %%", 100*l.Ratio)
			rounds = fmt.Sprintf("%.0f–%.0f %%", 100*l.Rounds[0], 100*l.Rounds[1])
		}
		if l.Latency != nil {
			took = fmt.Sprintf("%.1f, %.1f, %.1f ms", l.Latency.Half, l.Latency.Most, l.Latency.Max)
		}
		bar, verdict := l.describeBar()
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.What, decimal(l.Figure), l.Unit, yard, l.Yardstick, ratio, rounds, bar, verdict, took)
	}
	t.Flush()
}

// decimal formats a figure with three digits or more.
func decimal(x float64) string {
	return strconv.FormatFloat(x, 'f', max(0, min(2, 2-int(math.Log10(max(x, 1))))), 64)
}

// describeBar returns the bar as text, and "met" or "missed".
func (l result) describeBar() (text, verdict string) {
	var met bool
	switch {
	case l.Bar == 0:
		return "-", ""
	case l.Yardstick == "":
		text, met = strings.TrimSpace(decimal(l.Bar)+" "+l.Unit), l.Figure <= l.Bar
	default:
		text, met = fmt.Sprintf("%.0f %%", 100*l.Bar), l.Ratio >= l.Bar
	}
	if met {
		return text, "met"
	}
	return text, "missed"
}

// printCPU prints the CPU time per operation of each process.
func (r *report) printCPU(w io.Writer) {
	t := table(w, "CPU per operation, µs", "installation", "yardstick", "ratio")
	for _, l := range r.Results {
		if len(l.CPU) > 0 {
			ratio := "-"
			if l.CPURatio > 0 {
				ratio = fmt.Sprintf("%.1f %%", 100*l.CPURatio)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.What, byProcess(l.CPU), byProcess(l.YardstickCPU), ratio)
		}
	}
	t.Flush()
}

// byProcess formats CPU times, the sum first.
func byProcess(cpu map[string]float64) string {
	if len(cpu) == 0 {
		return "-"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(cpu)) {
		parts = append(parts, fmt.Sprintf("%s %.1f", name, cpu[name]))
	}
	return fmt.Sprintf("%.1f = %s", sumOf(cpu), strings.Join(parts, " + "))
}

func (r *report) printMemory(w io.Writer) {
	names := slices.Sorted(maps.Keys(r.Memory[0].Of))
	t := table(w, append([]string{"anonymous memory (RssAnon), MB"}, names...)...)
	for _, m := range r.Memory {
		fmt.Fprint(t, m.When)
		for _, name := range names {
			if bytes, ok := m.Of[name]; ok {
				fmt.Fprintf(t, "\t%.0f", float64(bytes)/1e6)
			} else {
				fmt.Fprint(t, "\t-")
			}
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
