package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// print writes the report for people.
func (r *report) print(w io.Writer) {
	s := r.Setting
	fmt.Fprintf(w, "\n%d processors, %s; %d requests at a time on %d connections; objects of %d bytes; %d rounds in turn with the yardstick\n",
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

// table begins a table after an empty line.
func table(w io.Writer, columns ...string) *tabwriter.Writer {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	return t
}

func (r *report) printResults(w io.Writer) {
	t := table(w, "measured", "figure", "unit", "yardstick", "", "ratio", "rounds", "bar, aim", "", "p50, p99, max")
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
		goal, verdict := l.Goal.describe(l)
		fmt.Fprintf(t, "%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.What, l.Figure, l.Unit, yard, l.Yardstick, ratio, rounds, goal, verdict, took)
	}
	t.Flush()
}

// describe says what the goal is, and how far the result came.
func (g goal) describe(of result) (text, verdict string) {
	reached := func(mark float64) bool { return of.Ratio >= mark }
	switch {
	case g == goal{}:
		return "-", ""
	case of.Unit == sizeUnit:
		text = fmt.Sprintf("%.0f, %.0f MB", g.Bar, g.Aim)
		reached = func(mark float64) bool { return of.Figure <= mark }
	case of.Yardstick == "":
		return "-", ""
	default:
		text = fmt.Sprintf("%.0f, %.0f %%", 100*g.Bar, 100*g.Aim)
	}
	switch {
	case reached(g.Aim):
		return text, "aim"
	case reached(g.Bar):
		return text, "bar"
	}
	return text, "missed"
}

// printCPU prints what each process spent on one operation.
func (r *report) printCPU(w io.Writer) {
	t := table(w, "CPU of an operation (a LIST, a delivery, …), µs", "here", "yardstick", "ratio")
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

// byProcess begins with the sum.
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
