package history

import (
	"fmt"
	"slices"
	"strings"

	"portico/resource"
)

// Bounds of the description of a fault.
const (
	reportedFaults  = 5
	reportedCommits = 8 // of an object, around a revision
	reportedEvents  = 6
)

func describe(f *facts) string {
	if f == nil {
		return "nothing"
	}
	text := fmt.Sprintf("%s{%s color=%q tier=%q pad=%d", f.key, f.token, f.color, f.tier, f.pad)
	if f.finalizers != "" {
		text += " held"
	}
	if f.terminating {
		text += " terminating"
	}
	return text + "}"
}

func (s shown) String() string { return fmt.Sprintf("%s@%d", describe(&s.state), s.rev) }

func (n notice) String() string {
	switch n.kind {
	case resource.Added:
		return "ADDED " + shown{n.state, n.rev}.String()
	case resource.Modified:
		return "MODIFIED " + shown{n.state, n.rev}.String()
	case resource.Deleted:
		return "DELETED " + shown{n.state, n.rev}.String()
	case resource.Bookmark:
		return fmt.Sprintf("BOOKMARK@%d", n.rev)
	case resource.Synced:
		return fmt.Sprintf("SYNCED@%d", n.rev)
	}
	return "nothing"
}

// eventsAround describes the events of a watch before and after an event.
func (p *play) eventsAround(s *session, n notice) string {
	i := max(slices.Index(s.notices, n), 0)
	from, to := max(0, i-reportedEvents), min(len(s.notices), i+3)
	var b strings.Builder
	fmt.Fprintf(&b, "\n\twatch %+v since %d, from moment %d to %d, floor %d, %s, events %d-%d of %d:", s.opts.At, s.opts.Since,
		s.begin, s.end, s.floor, s.why, from, to, len(s.notices))
	for _, n := range s.notices[from:to] {
		b.WriteString("\n\t\t" + n.String())
	}
	return strings.ReplaceAll(b.String(), "%", "%%")
}

// report describes the faults, with the commits of their objects.
func (p *play) report(t *truth) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults in %d commits", len(p.faults), len(t.commits))
	for _, f := range p.faults[:min(len(p.faults), reportedFaults)] {
		fmt.Fprintf(&b, "\n- %s", f.text)
		for _, c := range t.around(f.key, f.rev) {
			by := "unknown"
			if c.by != nil {
				by = fmt.Sprintf("%s by %s, through %s, moments %d to %d", c.by.op, c.by.client, c.by.door, c.by.begin, c.by.end)
			}
			fmt.Fprintf(&b, "\n\t%d: %s -> %s (%s)", c.rev, c.key, describe(c.cur), by)
		}
	}
	return b.String()
}

// around returns the commits of one object, or of all, around a revision.
func (t *truth) around(key resource.Key, rev int64) []*commit {
	of := t.byKey[key]
	if key == (resource.Key{}) {
		of = t.commits
	}
	if rev == 0 {
		return nil
	}
	i, _ := slices.BinarySearchFunc(of, rev, func(c *commit, rev int64) int { return int(c.rev - rev) })
	return of[max(0, i-reportedCommits/2):min(len(of), i+reportedCommits/2)]
}
