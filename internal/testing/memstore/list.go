package memstore

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// List returns a page of objects.
func (s *store) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix := s.info.RangePath(opts.Namespace)
	snap, start, err := s.startList(opts, prefix)
	if err != nil {
		return nil, err
	}
	list := &resource.List{Revision: snap.rev}
	var last string
	var remaining int64
	snap.tree.Ascend(&entry{path: start}, func(e *entry) bool {
		if !strings.HasPrefix(e.path, prefix) {
			return false
		}
		switch {
		case opts.Limit > 0 && int64(len(list.Items)) == opts.Limit:
			remaining++
		case opts.Selector.Matches(e.object):
			list.Items, last = append(list.Items, e.object), e.path
		}
		return true
	})
	if remaining > 0 {
		list.Continue = resource.EncodeContinue(snap.rev, strings.TrimPrefix(last, prefix))
		if opts.Selector.Empty() {
			list.Remaining = &remaining
		}
	}
	return list, nil
}

// startList chooses the state to read and the path to begin at.
func (s *store) startList(opts resource.ListOptions, prefix string) (snapshot, string, error) {
	if opts.Continue != "" {
		rev, start, err := resource.DecodeContinue(opts.Continue)
		if err != nil {
			return snapshot{}, "", err
		}
		if rev == resource.InconsistentRevision {
			return s.last(), prefix + start, nil
		}
		snap, err := s.exactly(rev, resource.ExpiredContinue(
			resource.EncodeContinue(resource.InconsistentRevision, strings.TrimSuffix(start, "\x00"))))
		return snap, prefix + start, err
	}
	switch opts.At.Freshness {
	case resource.Exact:
		snap, err := s.exactly(opts.At.Revision, resource.ExpiredList())
		return snap, prefix, err
	case resource.NotOlderThan:
		if now := s.last().rev; opts.At.Revision > now {
			return snapshot{}, "", resource.TooLargeRevision(opts.At.Revision, now)
		}
	}
	return s.last(), prefix, nil
}

func (s *store) exactly(rev int64, expired *apierrors.StatusError) (snapshot, error) {
	switch {
	case rev <= 0:
		return snapshot{}, apierrors.NewBadRequest("an exact list needs a resource version above 0")
	case rev > s.last().rev:
		return snapshot{}, resource.TooLargeRevision(rev, s.last().rev)
	case rev < s.oldest():
		return snapshot{}, expired
	}
	return s.at(rev), nil
}
