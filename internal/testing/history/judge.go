package history

import (
	"math"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// judge compares all responses with what happened.
func (p *play) judge(t *truth) {
	for _, w := range p.writes {
		p.judgeWrite(t, w)
	}
	for _, g := range p.gettings {
		p.judgeGet(t, g)
	}
	for _, l := range p.listings {
		p.judgeList(t, l)
	}
	for _, c := range p.chains {
		p.judgeChain(t, c)
	}
}

// judgeWrite checks that an acknowledged write is stored, and that a refusal was right.
func (p *play) judgeWrite(t *truth, w *write) {
	switch {
	case w.outcome == refused && apierrors.IsNotFound(w.err):
		p.judgeAbsent(t, &w.span, w.op, w.key, w.floor)
	case w.outcome == refused && apierrors.IsAlreadyExists(w.err):
		p.judgePresent(t, w)
	}
	if w.outcome != acknowledged {
		return
	}
	c := t.last(w.key, w.rev)
	switch {
	case w.rev == 0:
		p.judgeRemoved(t, w)
	case c == nil || c.rev != w.rev:
		p.fault(w.key, w.rev, "%s, through %s: %s of %s was acknowledged at %d and never happened", w.client, w.door, w.op, w.key, w.rev)
	case w.gone != (c.cur == nil) || !w.gone && *c.cur != w.state:
		p.fault(w.key, w.rev, "%s, through %s: %s of %s was answered with %s, but made %s", w.client, w.door, w.op, w.key, describe(&w.state), describe(c.cur))
	case !w.gone && w.begins && c.by != w:
		// The deletion had begun already: nothing to do.
		p.judgeCurrent(t, &w.span, w.op, w.key, w.rev, w.floor)
	case w.rev <= w.floor || w.rev > t.ceiling(w.end):
		p.fault(w.key, w.rev, "%s, through %s: %s of %s at %d was begun after a client had seen %d", w.client, w.door, w.op, w.key, w.rev, w.floor)
	}
}

// judgeCurrent checks that a state at rev can have been the newest one for a call that had
// to include the state at floor.
func (p *play) judgeCurrent(t *truth, s *span, what string, key resource.Key, rev, floor int64) {
	if next := t.following(key, rev); next <= floor {
		p.fault(key, rev, "%s, through %s: %s of %s shows %d, but had to see %d, and it has been changed at %d", s.client, s.door, what, key, rev, floor, next)
	}
	if ceiling := t.ceiling(s.end); rev > ceiling {
		p.fault(key, rev, "%s, through %s: %s of %s shows %d, which was begun only after it", s.client, s.door, what, key, rev)
	}
}

// judgeAbsent checks that an object can have been absent for a call that had to include the
// state at floor.
func (p *play) judgeAbsent(t *truth, s *span, what string, key resource.Key, floor int64) {
	ceiling := t.ceiling(s.end)
	for c := t.last(key, floor); c != nil && c.cur != nil; {
		gone := t.following(key, c.rev)
		if gone > ceiling {
			p.fault(key, c.rev, "%s, through %s: %s finds no %s, which was there from %d on, before the call began (at %d)", s.client, s.door, what, key, c.rev, floor)
			return
		}
		c = t.last(key, gone)
	}
}

// judgeRemoved checks that an object was deleted during the call.
func (p *play) judgeRemoved(t *truth, w *write) {
	ceiling := t.ceiling(w.end)
	if !slices.ContainsFunc(t.byKey[w.key], func(c *commit) bool { return c.cur == nil && c.rev > w.floor && c.rev <= ceiling }) {
		p.fault(w.key, w.floor, "%s, through %s: %s of %s was acknowledged, and nothing deleted it between %d and %d", w.client, w.door, w.op, w.key, w.floor, ceiling)
	}
}

// judgePresent checks that the object that prevented a creation can have existed.
func (p *play) judgePresent(t *truth, w *write) {
	ceiling := t.ceiling(w.end)
	for c := t.last(w.key, w.floor); c == nil || c.cur == nil; {
		rev := w.floor
		if c != nil {
			rev = max(rev, c.rev)
		}
		made := t.following(w.key, rev)
		if made > ceiling {
			p.fault(w.key, w.floor, "%s, through %s: %s finds that %s exists, which was not so from %d on", w.client, w.door, w.op, w.key, w.floor)
			return
		}
		c = t.last(w.key, made)
	}
}

// oldest returns the oldest revision that a read may show.
func (s *span) oldest(at resource.At) int64 {
	switch at.Freshness {
	case resource.Latest:
		return s.floor
	case resource.Any:
		return 0
	}
	return at.Revision
}

func (p *play) judgeGet(t *truth, g *getting) {
	floor := g.oldest(g.at)
	if !g.found {
		p.judgeAbsent(t, &g.span, "get", g.key, floor)
		return
	}
	c := t.at(g.key, g.rev)
	if c == nil || *c.cur != g.state {
		p.fault(g.key, g.rev, "%s, through %s: get of %s at %d shows %s, which it never was", g.client, g.door, g.key, g.rev, describe(&g.state))
		return
	}
	p.judgeCurrent(t, &g.span, "get", g.key, g.rev, floor)
}

func (p *play) judgeList(t *truth, l *listing) {
	if l.rev == 0 {
		return // no page was read
	}
	if floor := l.oldest(l.at); l.rev < floor {
		p.fault(resource.Key{}, l.rev, "%s, through %s: list of %s is at %d and had to see %d", l.client, l.door, l.sel.text, l.rev, floor)
	}
	if l.at.Freshness == resource.Exact && l.rev != l.at.Revision {
		p.fault(resource.Key{}, l.rev, "%s, through %s: list of %s exactly at %d is at %d", l.client, l.door, l.sel.text, l.at.Revision, l.rev)
	}
	if ceiling := t.ceiling(l.end); l.rev > ceiling && ceiling < math.MaxInt64-1 {
		p.fault(resource.Key{}, l.rev, "%s, through %s: list of %s is at %d, which was begun only after it", l.client, l.door, l.sel.text, l.rev)
	}
	info := Info()
	want := slices.DeleteFunc(t.state(l.sel, l.rev), func(s shown) bool { return info.ObjectPath(s.state.key) <= l.after })
	for _, r := range l.remaining {
		if int64(len(want)-r.sent) != r.rest {
			p.fault(resource.Key{}, l.rev, "%s, through %s: list of %s at %d says that %d remain after %d of %d", l.client, l.door, l.sel.text, l.rev, r.rest, r.sent, len(want))
		}
	}
	if !l.whole {
		want = want[:min(len(want), len(l.items))]
	}
	p.judgeState(l.rev, l.items, want, "%s, through %s: list of %s", l.client, l.door, l.sel.text)
}

// judgeState compares a state with the expected one.
func (p *play) judgeState(rev int64, got, want []shown, format string, args ...any) {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			p.fault(want[i].state.key, want[i].rev, format+" at %d ends before %s", append(args, rev, want[i])...)
		case i >= len(want):
			p.fault(got[i].state.key, got[i].rev, format+" at %d shows %s too many", append(args, rev, got[i])...)
		case got[i] != want[i]:
			p.fault(want[i].state.key, want[i].rev, format+" at %d shows %s in the place of %s", append(args, rev, got[i], want[i])...)
		default:
			continue
		}
		return
	}
}
