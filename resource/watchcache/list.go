package watchcache

import (
	"context"
	"strings"

	"portico/resource"
)

// List returns a page of objects. The first page comes from the present
// snapshot, which is kept for the pages that follow; where it is no longer
// kept, the store beneath goes on at its revision.
func (s *store) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	if opts.Continue != "" {
		rev, start, err := resource.DecodeContinue(opts.Continue)
		if err != nil {
			return nil, err
		}
		if rev > 0 {
			if kept := s.cache.at(rev); kept != nil {
				return s.page(kept, opts, start), nil
			}
		}
		return s.beneath.List(ctx, opts)
	}
	if opts.At.Freshness == resource.Any {
		opts.Limit = 0 // contract 5.2: limit is ignored
	}
	now, err := s.fresh(ctx, opts.At)
	if err != nil {
		return nil, err
	}
	if now == nil {
		return s.beneath.List(ctx, opts)
	}
	return s.page(now, opts, ""), nil
}

// page reads one page of a snapshot, from the relative key start on.
func (s *store) page(at *snapshot, opts resource.ListOptions, start string) *resource.List {
	out := &resource.List{Revision: at.rev}
	prefix := s.info.RangePath(opts.Namespace)
	if name, ok := opts.Selector.Name(); ok && start == "" && (opts.Namespace != "" || !s.info.Namespaced) {
		// One object is asked for: there is no need to walk the range.
		if it, ok := at.tree.Get(item{path: prefix + name}); ok && opts.Selector.Matches(it.obj) {
			out.Items = append(out.Items, it.obj)
		}
		return out
	}
	var last string
	var rest int64
	at.tree.Ascend(item{path: prefix + start}, func(it item) bool {
		switch {
		case !strings.HasPrefix(it.path, prefix):
			return false
		case opts.Limit > 0 && int64(len(out.Items)) >= opts.Limit:
			if !opts.Selector.Empty() && rest > 0 {
				return false
			}
			if opts.Selector.Matches(it.obj) {
				rest++
			}
		case opts.Selector.Matches(it.obj):
			out.Items = append(out.Items, it.obj)
			last = it.path
		}
		return true
	})
	if rest > 0 {
		out.Continue = resource.EncodeContinue(at.rev, strings.TrimPrefix(last, prefix))
		if opts.Selector.Empty() {
			out.Remaining = &rest
		}
		s.cache.keep(at)
	}
	return out
}
