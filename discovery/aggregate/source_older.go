package aggregate

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// olderList returns what a server lists in the older form; nothing, where it has
// none.
func (s *Source) olderList(ctx context.Context) ([]schema.GroupVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	a, err := s.getList(ctx, s.cfg.Limits.Document, pathGroups, acceptLegacy, "")
	switch {
	case err != nil:
		return nil, err
	case a.code == http.StatusTooManyRequests || a.code >= http.StatusInternalServerError:
		return nil, badStatus(a)
	case a.code != http.StatusOK || a.aggregated:
		return nil, nil
	}
	l, err := a.groups(&s.cfg.Limits)
	if err != nil {
		return nil, err
	}
	return l.ids, nil
}

// withoutOlder returns what stands in for the older list where that cannot be had:
// what the last one had beyond the server's list. There may be none; then what the server's list does not have may yet
// be in the other, but not for ever: after the grace period the server's list counts,
// unless it has nothing, as that of a server that only speaks the older form well. mu
// is held.
func (s *Source) withoutOlder(l *listing) (older []schema.GroupVersion, doubtful bool) {
	if s.older != nil {
		return *s.older, false
	}
	if s.olderFails.IsZero() {
		s.olderFails = time.Now()
	}
	return nil, len(l.aggregated) == 0 || time.Since(s.olderFails) < s.grace()
}
