package status

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
	"portico/gateway/installation"
)

// maxDown is how many APIs, and Backends, that are down are shown without -o wide.
const maxDown = 5

// printer prints a Status on one screen.
type printer struct {
	w     io.Writer
	paint func(cli.Color, string) string
	wide  bool
	now   time.Time
}

// line prints a line behind its name; the first of several with it.
func (p *printer) line(name string, lines ...string) {
	for _, l := range lines {
		l = strings.ReplaceAll(l, "\n", " ")
		fmt.Fprintf(p.w, "%s %s\n", p.paint(cli.Bold, fmt.Sprintf("%-12s", name)), l)
		name = ""
	}
}

// table prints rows behind a name.
func (p *printer) table(name string, rows [][]string) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(cli.Cells(row), "\t"))
	}
	table.Flush()
	for l := range strings.Lines(text.String()) {
		p.line(name, strings.TrimRight(l, " \n"))
		name = ""
	}
}

func (p *printer) status(s *Status) error {
	p.line("Endpoint", s.Endpoint)
	if i := s.Installation; i != nil {
		p.installation(i)
	}
	if g := s.Gateway; g != nil {
		ready := p.paint(cli.Green, "yes")
		if !g.Ready {
			ready = p.paint(cli.Red, "no: "+strings.Join(g.Failed, ", ")+" failed")
		}
		p.line("Ready", append([]string{ready}, g.Warnings...)...)
	}
	p.folder(s.Folder)
	if s.Gateway != nil {
		p.rest(s)
	}
	for i, u := range s.Unread {
		p.line([]string{"Not read", ""}[min(i, 1)], u.What+": "+u.Why)
	}
	if s.Healthy {
		p.line("Healthy", p.paint(cli.Green, "yes"))
		return nil
	}
	for i, problem := range s.Problems {
		p.line([]string{"Problems", ""}[min(i, 1)], p.paint(cli.Red, problem))
	}
	return nil
}

func (p *printer) installation(i *installation.Report) {
	p.line("Gateway", fmt.Sprintf("%s, %s, up %s", i.Instance, i.Version, p.ago(i.Started)))
	p.processes(i)
	var away [][]string
	for _, s := range i.Servers {
		if s.Error != "" {
			away = append(away, []string{s.Name, p.paint(cli.Red, cli.OneLine(s.Error))})
		}
	}
	p.table("Away", away)
	var leaders [][]string
	for _, e := range i.Etcd.Elections {
		row := []string{e.Name, e.Leader}
		if e.Waiting > 0 {
			row = append(row, fmt.Sprintf("%d waiting", e.Waiting))
		}
		leaders = append(leaders, row)
	}
	p.table("Leaders", leaders)
	var members [][]string
	for _, m := range i.Etcd.Members {
		if m.Error != "" {
			members = append(members, []string{m.Endpoint, p.paint(cli.Red, m.Error)})
			continue
		}
		role := "follows"
		if m.Leader {
			role = "leads"
		}
		size := fmt.Sprintf("%s, %s in use", bytesOf(m.Size), bytesOf(m.InUse))
		if m.Quota > 0 {
			size += fmt.Sprintf(" of %s", bytesOf(m.Quota))
		}
		members = append(members, []string{m.Endpoint, m.Version, role, size, fmt.Sprintf("answers in %.1f ms", m.Milliseconds), p.paint(cli.Red, strings.Join(m.Alarms, "; "))})
	}
	p.table("etcd", members)
}

// processes prints those on all machines.
func (p *printer) processes(i *installation.Report) {
	var rows [][]string
	for _, process := range i.Processes {
		row := []string{process.Component, process.Instance, process.Version, process.Address, "up " + duration.HumanDuration(i.Time.Sub(process.Started))}
		if process.Silent(i.Time) {
			row = append(row, p.paint(cli.Red, "silent for "+duration.HumanDuration(i.Time.Sub(process.Renewed))))
		}
		rows = append(rows, row)
	}
	p.table("Processes", rows)
}

func (p *printer) folder(f *Folder) {
	if f == nil {
		return
	}
	p.line("Data folder", f.Path)
	var rows [][]string
	for _, process := range f.Processes {
		rows = append(rows, []string{process.Name, fmt.Sprint(process.PID), bytesOf(int64(process.Memory)), "up " + p.ago(process.Started), cli.Plural(process.Restarts, "restart")})
	}
	p.table("This machine", rows)
	if len(f.LastLines) > 0 {
		p.line("Last lines", f.LastLines...)
	}
}

func (p *printer) rest(s *Status) {
	if len(s.Certificates) > 0 {
		shown := s.Certificates[:1]
		if p.wide {
			shown = s.Certificates
		}
		var lines []string
		for _, c := range shown {
			lines = append(lines, fmt.Sprintf("%s %s (%s)", c.Usage, goodFor(c.Ends.Sub(p.now)), c.File))
		}
		if !p.wide {
			lines[0] = fmt.Sprintf("%d; the first one that ends: %s", len(s.Certificates), lines[0])
		}
		p.line("Certificates", lines...)
	}
	p.counts("APIs", s.APIs)
	p.counts("Backends", s.Backends)
	p.table("Slowest", loads(s.Slowest))
	p.table("Busiest", loads(s.Busiest))
	p.line("Refused", p.sums(s.Refused))
	p.line("Failed hooks", p.sums(s.Webhooks))
}

func (p *printer) counts(name string, c *Counts) {
	if c == nil {
		return
	}
	if len(c.Down)+len(c.Partly) == 0 {
		p.line(name, fmt.Sprintf("%d, none down", c.Total))
		return
	}
	text := fmt.Sprintf("%d, %d down", c.Total, len(c.Down))
	if len(c.Partly) > 0 {
		text += fmt.Sprintf(", %d partly down", len(c.Partly))
	}
	p.line(name, p.paint(cli.Red, text))
	all := slices.Concat(c.Down, c.Partly)
	shown := all
	if !p.wide {
		shown = shown[:min(maxDown, len(shown))]
	}
	for _, d := range shown {
		p.line("", fmt.Sprintf("%s: %s: %s", d.Name, d.Reason, d.Why))
	}
	if n := len(all) - len(shown); n > 0 {
		p.line("", fmt.Sprintf("and %d more, which -o wide shows", n))
	}
}

func loads(all []inspect.Load) (rows [][]string) {
	for _, l := range all {
		rows = append(rows, []string{l.Name, cli.Plural(int(l.Requests), "request"), fmt.Sprintf("99%% within %.0f ms", l.P99*1000)})
	}
	return rows
}

// sums are counts by name since the gateway started.
func (p *printer) sums(of map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, of[name]))
	}
	if len(parts) == 0 {
		return "none since the gateway started"
	}
	return p.paint(cli.Red, strings.Join(parts, ", "))
}

func (p *printer) ago(t time.Time) string { return duration.HumanDuration(p.now.Sub(t)) }

func bytesOf(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
}
