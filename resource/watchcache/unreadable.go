package watchcache

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// A path whose stored value cannot be read is not in the tree, but known: what
// it holds is neither absent nor what it was before. Reads that would touch it
// are answered by the store beneath, which says what is wrong with it. Watches
// that may have seen it end, and do not begin with a state that lacks it: who
// took it for deleted might delete what depends on it.

// hides reports whether a path holds what cannot be read.
func (s *snapshot) hides(path string) bool {
	_, found := slices.BinarySearch(s.unreadable, path)
	return found
}

// hidesBelow reports whether any path with that prefix does.
func (s *snapshot) hidesBelow(prefix string) bool {
	i, _ := slices.BinarySearch(s.unreadable, prefix)
	return i < len(s.unreadable) && strings.HasPrefix(s.unreadable[i], prefix)
}

// note returns the sorted paths with one put in or taken out. Snapshots share
// the slice, so it is copied when it changes.
func note(paths []string, path string, unreadable bool) []string {
	i, found := slices.BinarySearch(paths, path)
	switch {
	case unreadable && !found:
		return slices.Insert(slices.Clone(paths), i, path)
	case !unreadable && found:
		return slices.Delete(slices.Clone(paths), i, i+1)
	}
	return paths
}

// refuseUnreadable is the error of a watch whose initial state would lack what
// cannot be read.
func (s *store) refuseUnreadable(ctx context.Context, opts resource.WatchOptions) error {
	_, err := s.beneath.List(ctx, resource.ListOptions{Namespace: opts.Namespace, Selector: opts.Selector})
	if err != nil {
		return err
	}
	return apierrors.NewTooManyRequests("an object could not be read until now", 1)
}

// readHidden returns what reading the first object of a range gives that could
// not be read until now, if a list of it will come to that. Where the list would
// find out by itself it is too late to say so: a part of it is sent. now may be
// nil.
func (s *store) readHidden(ctx context.Context, now *snapshot, opts resource.ListOptions) error {
	_, single := s.single(opts.Namespace, opts.Selector)
	if now == nil || single || opts.Limit > 0 || opts.Continue != "" || opts.At.Freshness == resource.Exact {
		return nil
	}
	i, _ := slices.BinarySearch(now.unreadable, s.info.RangePath(opts.Namespace))
	key := resource.Key{Name: strings.TrimPrefix(now.unreadable[i], s.info.RangePath(""))}
	if s.info.Namespaced {
		key.Namespace, key.Name, _ = strings.Cut(key.Name, "/")
	}
	if _, err := s.beneath.Get(ctx, key, resource.At{}); apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError {
		return err
	}
	return nil // it can be read, or is gone, by now
}

var _ resource.Discarder = (*store)(nil)

// Discard goes to the store beneath.
func (s *store) Discard(ctx context.Context, key resource.Key, dryRun bool) error {
	d, ok := s.beneath.(resource.Discarder)
	if !ok {
		return apierrors.NewMethodNotSupported(s.info.GroupResource(), "delete without reading")
	}
	return d.Discard(ctx, key, dryRun)
}
