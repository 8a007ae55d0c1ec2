package history

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"portico/resource"
)

// commit is the change at one revision.
type commit struct {
	rev int64
	key resource.Key
	// cur is the new state, nil after a deletion; prev is the commit before of the same
	// object, nil without one.
	cur  *facts
	prev *commit
	// by is the write of the commit; nil if it is unknown.
	by *write
}

// was returns the state before, nil if there was no object.
func (c *commit) was() *facts {
	if c.prev == nil {
		return nil
	}
	return c.prev.cur
}

// truth has all commits.
type truth struct {
	commits []*commit // by revision
	byKey   map[resource.Key][]*commit
	keys    []resource.Key // in the order of their paths
	// begun are the writes that committed, in the order of their beginnings; lowest are the
	// lowest revisions from each on.
	begun  []*commit
	lowest []int64
}

// truth determines the commits.
func (p *play) truth(ctx context.Context) (*truth, error) {
	t := &truth{byKey: map[resource.Key][]*commit{}}
	var err error
	if p.sys.Journal != nil {
		err = t.fromJournal(ctx, p)
	} else {
		t.fromAcknowledgements(p)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(t.commits, func(a, b *commit) int { return cmp.Compare(a.rev, b.rev) })
	for i, c := range t.commits {
		if i > 0 && t.commits[i-1].rev == c.rev {
			p.fault(c.key, c.rev, "%s and %s were both written at %d", t.commits[i-1].key, c.key, c.rev)
		}
		if of := t.byKey[c.key]; len(of) > 0 {
			c.prev = of[len(of)-1]
		}
		t.byKey[c.key] = append(t.byKey[c.key], c)
	}
	for key := range t.byKey {
		t.keys = append(t.keys, key)
	}
	info := Info()
	slices.SortFunc(t.keys, func(a, b resource.Key) int { return cmp.Compare(info.ObjectPath(a), info.ObjectPath(b)) })
	t.attribute(p)
	return t, nil
}

func (t *truth) fromJournal(ctx context.Context, p *play) error {
	call, cancel := context.WithTimeout(ctx, p.cfg.Patience)
	defer cancel()
	journal, err := p.sys.Journal(call, p.seen.Load())
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	for _, j := range journal {
		c := &commit{rev: j.Revision, key: j.Key}
		if j.Object != nil {
			f, err := factsOf(j.Object)
			if err != nil {
				return fmt.Errorf("read journal: %w", err)
			}
			c.cur = &f
		}
		t.commits = append(t.commits, c)
	}
	return nil
}

func (t *truth) fromAcknowledgements(p *play) {
	for _, w := range p.writes {
		if w.outcome != acknowledged {
			continue
		}
		c := &commit{rev: w.rev, key: w.key}
		if !w.gone {
			c.cur = &w.state
		}
		t.commits = append(t.commits, c)
	}
}

// attribute finds the write of each commit.
func (t *truth) attribute(p *play) {
	byToken, byRevision := map[string]*write{}, map[int64]*write{}
	unknown := map[resource.Key][]*write{} // removals that may have happened
	for _, w := range p.writes {
		byToken[w.token] = w
		switch {
		case w.outcome == acknowledged && w.floor < w.rev:
			byRevision[w.rev] = w
		case w.outcome == uncertain && (w.removes || w.begins), w.outcome == acknowledged && w.rev == 0:
			unknown[w.key] = append(unknown[w.key], w)
		}
	}
	for _, c := range t.commits {
		switch w := byRevision[c.rev]; {
		case w != nil:
			c.by = w
		case c.cur != nil && c.was() != nil && c.cur.token == c.was().token || c.cur == nil:
			if of := unknown[c.key]; len(of) > 0 {
				c.by, unknown[c.key] = of[0], of[1:]
			}
		default:
			if w := byToken[c.cur.token]; w != nil && w.outcome == uncertain {
				c.by = w
			}
		}
		if c.by == nil {
			p.fault(c.key, c.rev, "no write made %s at %d: %s", c.key, c.rev, describe(c.cur))
			continue
		}
		t.begun = append(t.begun, c)
	}
	slices.SortFunc(t.begun, func(a, b *commit) int { return cmp.Compare(a.by.begin, b.by.begin) })
	t.lowest = make([]int64, len(t.begun)+1)
	t.lowest[len(t.begun)] = math.MaxInt64
	for i := len(t.begun) - 1; i >= 0; i-- {
		t.lowest[i] = min(t.lowest[i+1], t.begun[i].rev)
	}
}

// ceiling returns the newest revision that a call which ended at a moment can have seen:
// none of a write that began after it.
func (t *truth) ceiling(end int64) int64 {
	i := sort.Search(len(t.begun), func(i int) bool { return t.begun[i].by.begin > end })
	return t.lowest[i] - 1
}

// last returns the last commit of an object up to a revision, nil for none.
func (t *truth) last(key resource.Key, rev int64) *commit {
	of := t.byKey[key]
	i := sort.Search(len(of), func(i int) bool { return of[i].rev > rev })
	if i == 0 {
		return nil
	}
	return of[i-1]
}

// following returns the revision of the next commit after a revision; MaxInt64 without one.
func (t *truth) following(key resource.Key, rev int64) int64 {
	of := t.byKey[key]
	if i := sort.Search(len(of), func(i int) bool { return of[i].rev > rev }); i < len(of) {
		return of[i].rev
	}
	return math.MaxInt64
}

// at returns the commit of an object at exactly a revision; nil without one.
func (t *truth) at(key resource.Key, rev int64) *commit {
	if c := t.last(key, rev); c != nil && c.rev == rev && c.cur != nil {
		return c
	}
	return nil
}

// state returns the state of a selection at a revision, in the order of paths.
func (t *truth) state(sel *selection, rev int64) []shown {
	var out []shown
	for _, key := range t.keys {
		if c := t.last(key, rev); c != nil && c.cur != nil && sel.has(c.cur) {
			out = append(out, shown{*c.cur, c.rev})
		}
	}
	return out
}

// expected returns the event of a commit for a watcher of a selection.
func (t *truth) expected(sel *selection, c *commit) (notice, bool) {
	was, is := c.was() != nil && sel.has(c.was()), c.cur != nil && sel.has(c.cur)
	switch {
	case was && is:
		return notice{resource.Modified, *c.cur, c.rev}, true
	case is:
		return notice{resource.Added, *c.cur, c.rev}, true
	case was:
		return notice{resource.Deleted, *c.was(), c.rev}, true
	}
	return notice{}, false
}

// after returns the index of the first commit after a revision.
func (t *truth) after(rev int64) int {
	return sort.Search(len(t.commits), func(i int) bool { return t.commits[i].rev > rev })
}
