package watchcache

import (
	"context"
	"strings"

	"portico/resource"
)

// List returns a page of objects. The first page comes from a snapshot, which is kept for
// the pages that follow; without it the store beneath continues at its revision.
func (s *store) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	if !s.has() {
		page := opts.Limit > 0 && opts.Selector.Empty()
		if page || opts.Continue != "" || opts.At.Freshness == resource.Exact {
			return s.beneath.List(ctx, opts)
		}
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
	}
	at, start := opts.At, ""
	switch {
	case opts.Continue != "":
		rev, from, err := resource.DecodeContinue(opts.Continue)
		if err != nil {
			return nil, err
		}
		at, start = resource.At{Freshness: resource.Exact, Revision: rev}, from
		if rev == resource.InconsistentRevision {
			at = resource.At{}
		}
	case at.Freshness == resource.Any:
		opts.Limit = 0 // docs/wire.md 5.2: ignored
	}
	now, err := s.fresh(ctx, at)
	if err != nil {
		return nil, err
	}
	if now == nil || now.hidesBelow(s.info.RangePath(opts.Namespace)) {
		if err := s.readHidden(ctx, now, opts); err != nil {
			return nil, err
		}
		l, err := s.beneath.List(ctx, opts)
		if now == nil {
			s.fellBack(at, err)
		}
		return l, err
	}
	rev := now.rev
	if at.Freshness == resource.Exact {
		rev = at.Revision
	}
	return s.page(now, rev, opts, start)
}

// page returns a page of a snapshot in which the resource is as of rev, from the relative
// key start.
func (s *store) page(now *snapshot, rev int64, opts resource.ListOptions, start string) (*resource.List, error) {
	out := &resource.List{Revision: rev}
	if path, ok := s.single(opts.Namespace, opts.Selector); ok && start == "" {
		o := now.get(path)
		if o == nil {
			return out, nil
		}
		if err := opts.Selector.Prepare([]*resource.Object{o}); err != nil {
			return nil, err
		}
		if opts.Selector.Matches(o) {
			out.Items = append(out.Items, o)
		}
		return out, nil
	}
	prefix, all := s.info.RangePath(opts.Namespace), opts.Selector.Empty()
	if all {
		n := now.count(prefix, start)
		if opts.Limit > 0 {
			n = int(min(int64(n), opts.Limit))
		}
		out.Items = make([]*resource.Object, 0, n)
	}
	last, more := "", false
	err := s.walk(now, opts, start, func(it item) bool {
		switch {
		case !all && !opts.Selector.Matches(it.obj):
			return true
		case opts.Limit > 0 && int64(len(out.Items)) == opts.Limit:
			more = true
			return false
		}
		out.Items = append(out.Items, it.obj)
		last = it.path
		return true
	})
	if err != nil {
		return nil, err
	}
	if more {
		last = last[len(prefix):]
		out.Continue = resource.EncodeContinue(rev, last)
		if all {
			rest := int64(now.count(prefix, last+"\x00"))
			out.Remaining = &rest
		}
		s.cache.pages.keep(s.events, rev, now, s.cache.age())
	}
	return out, nil
}

// walk calls f, in order, with the items of the namespace from start on until f returns
// false.
func (s *store) walk(now *snapshot, opts resource.ListOptions, start string, f func(item) bool) error {
	prefix := s.narrow(opts.Namespace, opts.Selector)
	from := max(s.info.RangePath(opts.Namespace)+start, prefix)
	if !strings.HasPrefix(from, prefix) {
		return nil
	}
	return now.walkSelected(prefix, from[len(prefix):], opts.Selector, f)
}

// narrow returns the range of the objects that a selector can match in a namespace.
func (s *store) narrow(namespace string, sel resource.Selector) string {
	if ns, ok := sel.Namespace(); ok && s.info.Namespaced && namespace == "" {
		namespace = ns
	}
	return s.info.RangePath(namespace)
}

// single returns the storage path of the only object that a selector can match in a
// namespace; ok is false if there may be others.
func (s *store) single(namespace string, sel resource.Selector) (path string, ok bool) {
	name, ok := sel.Name()
	if ok && s.info.Namespaced && namespace == "" {
		namespace, ok = sel.Namespace()
	}
	if !ok || s.info.Namespaced && namespace == "" {
		return "", false
	}
	return s.info.RangePath(namespace) + name, true
}
