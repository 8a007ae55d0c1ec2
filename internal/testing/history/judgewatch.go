package history

import (
	"slices"

	"portico/resource"
)

// view is the state of one watcher: the objects of its selection by its events.
type view struct {
	play *play
	t    *truth
	sel  *selection
	s    *session
	// known is false while the watcher cannot know its selection's state.
	known bool
	state map[resource.Key]shown
	// pos is the revision of the last event. next is the index of the first commit after
	// it; -1 before the first event of a watch that starts now.
	pos  int64
	next int
	// jumps counts differences.
	jumps int
}

// judgeChain replays the events of one watcher.
func (p *play) judgeChain(t *truth, c *chain) {
	v := &view{play: p, t: t, sel: c.sel}
	for _, s := range c.sessions {
		v.s = s
		if s.open == 0 {
			continue
		}
		if !v.replay() {
			return
		}
	}
	if !c.reached || !v.known {
		return
	}
	p.judgeState(v.pos, v.shown(), t.state(c.sel, v.pos), "the replay of %s, which watches %s,", v.s.client, c.sel.text)
}

// shown returns the state in the order of paths.
func (v *view) shown() []shown {
	var out []shown
	for _, key := range v.t.keys {
		if s, ok := v.state[key]; ok {
			out = append(out, s)
		}
	}
	return out
}

// replay replays one session and reports whether it was right.
func (v *view) replay() bool {
	notices := v.s.notices
	switch {
	case v.s.opts.Since > 0:
		if v.pos != v.s.opts.Since { // it has listed
			v.reset(v.s.opts.Since)
		}
	case v.s.opts.InitialEvents:
		n, ok := v.initial(notices)
		if !ok || n == len(notices) {
			v.known, v.pos = false, 0
			return ok
		}
		notices = notices[n:]
	default:
		v.known, v.pos, v.next = false, 0, -1
	}
	return v.live(notices)
}

// reset sets the state to that at a revision.
func (v *view) reset(rev int64) {
	v.known, v.pos, v.next, v.state = true, rev, v.t.after(rev), map[resource.Key]shown{}
	for _, s := range v.t.state(v.sel, rev) {
		v.state[s.state.key] = s
	}
}

// initial checks the initial events, and returns their number with the one that ends them;
// all if that is missing.
func (v *view) initial(notices []notice) (int, bool) {
	end := slices.IndexFunc(notices, func(n notice) bool { return n.kind == resource.Synced })
	got := make([]shown, 0, len(notices))
	for i, n := range notices {
		if i == end {
			break
		}
		if c := v.t.at(n.state.key, n.rev); n.kind != resource.Added || c == nil || *c.cur != n.state {
			return 0, v.wrong(n, "is no initial event")
		}
		got = append(got, shown{n.state, n.rev})
	}
	if end < 0 {
		return len(notices), true
	}
	rev := notices[end].rev
	if floor := v.s.oldest(v.s.opts.At); rev < floor {
		return 0, v.wrong(notices[end], "ends initial events that had to be at %d", floor)
	}
	before := len(v.play.faults)
	v.play.judgeState(rev, got, v.t.state(v.sel, rev), "%s, through %s: the initial events of %s", v.s.client, v.s.door, v.sel.text)
	v.reset(rev)
	return end + 1, len(v.play.faults) == before
}

// live checks the events after the initial ones.
func (v *view) live(notices []notice) bool {
	for i := 0; i < len(notices); i++ {
		n := notices[i]
		if v.next < 0 {
			v.join(notices)
		}
		want, to := v.expect(n.rev)
		switch {
		case n.kind == resource.Synced:
			return v.wrong(n, "ends initial events a second time")
		case n.rev < v.pos || n.rev == v.pos && n.kind != resource.Bookmark && n.kind != resource.Deleted:
			return v.wrong(n, "comes after %d", v.pos)
		case n.rev > v.t.ceiling(v.s.end):
			return v.wrong(n, "was begun only after the watch")
		case n == want || n.kind == resource.Bookmark && want == (notice{}):
			v.apply(n)
			v.pos, v.next = n.rev, to
		default:
			skip, ok := v.jump(notices[i:])
			if !ok {
				return v.wrong(n, "comes in the place of %s", want)
			}
			i += skip - 1
		}
	}
	return true
}

// expect returns the next expected event up to a revision, or the zero value, and the index
// of the commit after it.
func (v *view) expect(rev int64) (want notice, to int) {
	for to = v.next; to < len(v.t.commits) && v.t.commits[to].rev <= rev; to++ {
		if n, ok := v.t.expected(v.sel, v.t.commits[to]); ok {
			return n, to + 1
		}
	}
	return notice{}, to
}

// join finds the revision at which a watch that starts now has begun: during the call, so
// that it includes every write that began after it. A bookmark shows the revision, and so
// does a DELETED at the beginning of a difference, which has the state from before.
func (v *view) join(notices []notice) {
	n := notices[0]
	newest := n.rev - 1
	if n.kind == resource.Bookmark || n.kind == resource.Deleted {
		newest = n.rev
	}
	newest = max(min(newest, v.t.ceiling(v.s.open)), v.s.floor)
	for pos := newest; pos >= v.s.floor; pos-- {
		v.reset(pos)
		if want, _ := v.expect(n.rev); n == want || n.kind == resource.Bookmark && want == (notice{}) {
			return
		}
		if _, ok := v.jump(notices); ok {
			v.reset(pos)
			return
		}
	}
	v.reset(newest)
}

// apply applies an event to the state.
func (v *view) apply(n notice) {
	switch {
	case n.kind == resource.Bookmark || !v.known:
	case n.kind == resource.Deleted:
		delete(v.state, n.state.key)
	default:
		v.state[n.state.key] = shown{n.state, n.rev}
	}
}

// wrong records a wrong event and returns false.
func (v *view) wrong(n notice, format string, args ...any) bool {
	args = append([]any{v.s.client, v.s.door, v.sel.text, n}, args...)
	key := n.state.key
	v.play.fault(key, n.rev, "%s, through %s, watching %s: %s "+format+v.play.eventsAround(v.s, n), args...)
	return false
}
