package history

import (
	"context"
	"fmt"
	"math/rand/v2"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// getting is one read of one object.
type getting struct {
	span
	key resource.Key
	at  resource.At
	// found means that the object existed, in this state at rev. Other errors are not
	// recorded.
	found bool
	state facts
	rev   int64
}

// shown is one object of a list.
type shown struct {
	state facts
	rev   int64
}

// listing is one list of one or more pages.
type listing struct {
	span
	sel *selection
	at  resource.At
	// after is the path where a list continues if its revision was no longer kept.
	after string
	limit int64
	rev   int64
	items []shown
	// whole means that the last page was read.
	whole bool
	// remaining are the remainingItemCounts of pages.
	remaining []remainder
}

// remainder is the remainingItemCount after the first items.
type remainder struct {
	sent int
	rest int64
}

// reader reads through all doors.
type reader struct {
	*play
	name string
	rnd  *rand.Rand
	// own is the newest revision that the reader has seen, and lists are the revisions of
	// its lists.
	own   int64
	lists []int64
}

func (r *reader) run(ctx context.Context, steps int) {
	for i := 0; r.working(ctx, i, steps); i++ {
		r.pause(r.rnd)
		switch {
		case r.hopeless():
			return
		case r.rnd.IntN(3) == 0:
			key, at := randomKey(r.rnd), r.at(false)
			r.get(ctx, r.door(r.rnd), key, at)
		default:
			r.list(ctx, r.door(r.rnd), randomSelection(r.rnd), r.at(true), int64(max(0, r.rnd.IntN(9)-2)))
		}
	}
}

// at returns a random freshness.
func (r *reader) at(list bool) resource.At {
	switch n := r.rnd.IntN(10); {
	case n < 5:
		return resource.At{}
	case n < 6:
		return resource.At{Freshness: resource.Any}
	case n < 8 || !list:
		return resource.At{Freshness: resource.NotOlderThan, Revision: max(r.own, r.seen.Load()/2, 1)}
	case len(r.lists) > 0:
		return resource.At{Freshness: resource.Exact, Revision: r.lists[r.rnd.IntN(len(r.lists))]}
	}
	return resource.At{}
}

func (r *reader) get(ctx context.Context, d *Door, key resource.Key, at resource.At) {
	g := &getting{span: r.start(r.name, d), key: key, at: at}
	call, cancel := context.WithTimeout(ctx, r.cfg.Patience)
	defer cancel()
	o, err := d.Store().Get(call, key, at)
	r.own = max(r.own, r.got(ctx, g, "get", o, err))
}

// got records the response to a read of one object, and returns its revision.
func (p *play) got(ctx context.Context, g *getting, what string, o *resource.Object, err error) int64 {
	switch {
	case err == nil:
		g.found, g.rev = true, o.Revision
		if g.state, err = factsOf(o); err != nil {
			p.fault(g.key, o.Revision, "%s: %s: %v", g.client, what, err)
		}
		p.finish(&g.span, g.rev)
	case apierrors.IsNotFound(err):
		p.finish(&g.span)
	default:
		p.finish(&g.span)
		p.failed(ctx, &g.span, what+" "+g.key.String(), err)
		return 0
	}
	p.mu.Lock()
	p.gettings = append(p.gettings, g)
	p.mu.Unlock()
	return g.rev
}

// list reads a list to its end, each page through a random door. If its revision is
// no longer kept, a list continues with the token that the server offers.
func (r *reader) list(ctx context.Context, d *Door, sel *selection, at resource.At, limit int64) {
	l := r.newListing(d, sel, at, limit)
	token := ""
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, r.cfg.Patience)
		page, err := d.Store().List(call, resource.ListOptions{
			Namespace: sel.namespace, Selector: sel.selector, At: at, Limit: limit, Continue: token,
		})
		cancel()
		if err != nil {
			r.finish(&l.span)
			token = r.refusedPage(ctx, l, token, err)
			if token == "" {
				return
			}
			after := l.after
			if n := len(l.items); n > 0 {
				after = Info().ObjectPath(l.items[n-1].state.key)
			}
			l = r.newListing(d, sel, resource.At{}, limit)
			l.after = after
			continue
		}
		if !r.add(l, page, token) || page.Continue == "" {
			return
		}
		token = page.Continue
		d = r.door(r.rnd)
	}
}

func (r *reader) newListing(d *Door, sel *selection, at resource.At, limit int64) *listing {
	l := &listing{span: r.start(r.name, d), sel: sel, at: at, limit: limit}
	r.mu.Lock()
	r.listings = append(r.listings, l)
	r.mu.Unlock()
	return l
}

// refusedPage checks the error of a page, and returns the token to continue with.
func (r *reader) refusedPage(ctx context.Context, l *listing, token string, err error) string {
	rev := l.rev
	if rev == 0 && l.at.Freshness == resource.Exact {
		rev = l.at.Revision
	}
	if apierrors.IsResourceExpired(err) && rev > 0 && (rev <= r.compacted.Load() || r.sys.Forgetful) {
		next := resource.AsStatus(err).Continue
		if (next == "") != (token == "") {
			r.fault(resource.Key{}, rev, "%s, through %s: the refusal of a page at %d offers the token %q", l.client, l.door, rev, next)
		}
		return next
	}
	r.failed(ctx, &l.span, fmt.Sprintf("list %s at %+v", l.sel.text, l.at), err)
	return ""
}

// add records a page and reports whether to read another.
func (r *reader) add(l *listing, page *resource.List, token string) bool {
	r.finish(&l.span, page.Revision)
	r.own = max(r.own, page.Revision)
	if l.rev == 0 {
		l.rev = page.Revision
		r.lists = append(r.lists, l.rev)
	}
	if l.rev != page.Revision {
		r.fault(resource.Key{}, l.rev, "%s, through %s: a list at %d goes on at %d", l.client, l.door, l.rev, page.Revision)
		return false
	}
	limited := l.limit > 0 && (l.at.Freshness != resource.Any || page.Continue != "") // of any state, all may be shown
	if n := int64(len(page.Items)); limited && (n > l.limit || page.Continue != "" && n < l.limit) || !limited && page.Continue != "" {
		r.fault(resource.Key{}, l.rev, "%s, through %s: a page of %d, limit %d, token %q", l.client, l.door, n, l.limit, page.Continue)
	}
	for _, o := range page.Items {
		state, err := factsOf(o)
		if err != nil {
			r.fault(o.Key(), o.Revision, "%s, through %s: list: %v", l.client, l.door, err)
		}
		l.items = append(l.items, shown{state, o.Revision})
	}
	l.whole = page.Continue == ""
	if page.Remaining != nil {
		l.remaining = append(l.remaining, remainder{len(l.items), *page.Remaining})
	} else if !l.whole && l.sel.selector.Empty() {
		r.fault(resource.Key{}, l.rev, "%s, through %s: a page does not say how many remain", l.client, l.door)
	}
	return true
}

// readAll reads everything through every door after all writes have ended.
func (r *reader) readAll(ctx context.Context) {
	all := &selection{text: "all", has: func(*facts) bool { return true }}
	for i := range r.sys.Doors {
		d := &r.sys.Doors[i]
		r.list(ctx, d, all, resource.At{}, 0)
		r.list(ctx, d, all, resource.At{Freshness: resource.NotOlderThan, Revision: r.seen.Load()}, 0)
		for _, namespace := range Namespaces() {
			for _, name := range names() {
				r.get(ctx, d, resource.Key{Namespace: namespace, Name: name}, resource.At{})
			}
		}
	}
}
