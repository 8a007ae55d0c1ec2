package etcd

import (
	"cmp"
	"slices"

	"portico/resource"
)

// merge puts the events of several ranges, each in order, into one order. A
// change is released when every range is known to have come as far as its
// revision, so that a transaction is never split and none comes late.
type merge struct {
	// pos is the revision each range is known to have come to.
	pos []int64
	// held are the changes beyond the slowest range.
	held []resource.Change
}

func newMerge(ranges int, rev int64) merge {
	m := merge{pos: make([]int64, ranges)}
	for i := range m.pos {
		m.pos[i] = rev
	}
	return m
}

// events takes changes of one range, the last of which was made at rev.
func (m *merge) events(i int, rev int64, changes []resource.Change) {
	m.held = append(m.held, changes...)
	m.progress(i, rev)
}

// progress notes that one range has come to rev.
func (m *merge) progress(i int, rev int64) { m.pos[i] = max(m.pos[i], rev) }

// progressAll notes that every range has come to rev.
func (m *merge) progressAll(rev int64) {
	for i := range m.pos {
		m.progress(i, rev)
	}
}

// safe is the revision that every range has come to.
func (m *merge) safe() int64 { return slices.Min(m.pos) }

// holding reports whether changes wait for other ranges.
func (m *merge) holding() bool { return len(m.held) > 0 }

// release returns the changes that are safe, in revision order.
func (m *merge) release() []resource.Change {
	if len(m.held) == 0 {
		return nil
	}
	if !slices.IsSortedFunc(m.held, byRevision) {
		slices.SortStableFunc(m.held, byRevision)
	}
	safe := m.safe()
	n := 0
	for n < len(m.held) && m.held[n].Revision <= safe {
		n++
	}
	switch n {
	case 0:
		return nil
	case len(m.held):
		out := m.held
		m.held = nil
		return out
	}
	out := m.held[:n:n]
	m.held = slices.Clone(m.held[n:])
	return out
}

func byRevision(a, b resource.Change) int { return cmp.Compare(a.Revision, b.Revision) }
