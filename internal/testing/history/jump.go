package history

import (
	"maps"

	"portico/resource"
)

// maxJumps bounds the differences of one watcher.
const maxJumps = 100

// jump checks events that are the difference between two states, in the place of the events
// between them. It returns their number: 0 if the objects between them came and went. If a
// session ends within a difference, later sessions show whether it was right.
func (v *view) jump(notices []notice) (int, bool) {
	if len(v.play.sys.Restarts) == 0 || v.play.sys.Compact == nil || !v.known || v.jumps >= maxJumps {
		return 0, false
	}
	v.jumps++
	old := maps.Clone(v.state)
	oldPos := v.pos
	newest := v.pos
	for i, n := range notices {
		if to, ok := v.landed(newest, notices[i:]); ok {
			v.pos, v.next = to, v.t.after(to)
			return i, true
		}
		if n.rev < newest {
			break
		}
		newest = n.rev
		if n.kind == resource.Bookmark && !v.knows(n.rev) || n.kind != resource.Bookmark && !v.differs(n) {
			break
		}
		v.apply(n)
		if i+1 == len(notices) {
			v.pos, v.next = newest, v.t.after(newest)
			return i + 1, true
		}
	}
	v.jumps--
	v.state, v.pos = old, oldPos
	return 0, false
}

// differs reports whether an event leads from the known state to a later one. A DELETED has
// the known state of the object.
func (v *view) differs(n notice) bool {
	had, known := v.state[n.state.key]
	if n.kind == resource.Deleted {
		c := v.t.last(n.state.key, n.rev)
		return known && had.state == n.state && c.cur != nil && *c.cur == n.state
	}
	c := v.t.at(n.state.key, n.rev)
	return known == (n.kind == resource.Modified) && c != nil && *c.cur == n.state && v.sel.has(c.cur)
}

// knows reports whether the state at a revision is the known one.
func (v *view) knows(rev int64) bool {
	state := v.t.state(v.sel, rev)
	for _, s := range state {
		if v.state[s.state.key] != s {
			return false
		}
	}
	return len(state) == len(v.state)
}

// landed returns the revision, rev or later, at which the state is the known one and after which
// the rest, which is not empty, is expected.
func (v *view) landed(rev int64, rest []notice) (to int64, ok bool) {
	n := rest[0]
	for at := v.t.after(rev - 1); ; at++ {
		if v.knows(rev) {
			after := &view{play: v.play, t: v.t, sel: v.sel, next: v.t.after(rev)}
			want, _ := after.expect(n.rev)
			if n == want || n.kind == resource.Bookmark && want == (notice{}) {
				return rev, true
			}
		}
		if at >= len(v.t.commits) || v.t.commits[at].rev > n.rev {
			return 0, false
		}
		rev = v.t.commits[at].rev
	}
}
