package aggregate

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Some servers have more than their list of everything says: what is built on
// custom-metrics-apiserver has an empty one in the v2 form, and one version of each
// group in the older form. Such group/versions are asked for by themselves: those
// that the older list names, and those that somebody else says are there (Want).

// unlistedLasts is how old a list may get that does not name everything: what
// becomes of the rest does not show in it.
const unlistedLasts = time.Minute

// Want says which group/versions others expect of the server. From the next Check
// on it is asked also for those that it does not list; that it does not have one is
// no failure. A source of some group/versions only is asked for no others.
func (s *Source) Want(gvs []schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.wants, gvs) {
		s.wants = slices.Clone(gvs)
	}
}

// ReadAgain has the document of a group/version that Want names read with the next
// Check, whatever became of it before: somebody found that the server has it.
func (s *Source) ReadAgain(gv schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.wants, gv) {
		return
	}
	if s.again == nil {
		s.again = map[schema.GroupVersion]bool{}
	}
	s.again[gv] = true
}

// unlisted is what a list is completed with.
type unlisted struct {
	completed bool
	// named are those in ids that the list names.
	named []schema.GroupVersion
	// wants is what was expected then, and expected are those of it that the server
	// does not list.
	wants    []schema.GroupVersion
	expected map[schema.GroupVersion]bool
	// names are all that the server lists.
	names map[schema.GroupVersion]bool
	// lacking: the list does not name everything, or nothing.
	lacking bool
	// failed: the older list could not be had; doubtful: and may have what this list
	// lacks.
	failed, doubtful bool
}

// withUnlisted returns a list with what it does not name, in its place. Where the
// older list cannot be had, that is tried again with a later reading.
func (s *Source) withUnlisted(ctx context.Context, l *listing) *listing {
	if l.completed && !l.failed || s.cfg.GroupVersions != nil || l.path != pathGroups {
		return l
	}
	var older []schema.GroupVersion
	var err error
	if l.aggregated != nil {
		older, err = s.olderList(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next, doubtful := *l, false
	if err != nil {
		older, doubtful = s.withoutOlder(l)
	}
	next.add(older, s.wants, s.cfg.Limits.GroupVersions)
	next.failed, next.doubtful = err != nil, doubtful
	if err == nil {
		more := slices.Clip(next.ids[len(next.named) : len(next.ids)-len(next.expected)])
		s.older, s.olderFails = &more, time.Time{}
	}
	if s.listings[l.path] == l {
		s.listings[l.path] = &next
	}
	return &next
}

// add completes a list that nobody else has, to so many group/versions at most.
func (l *listing) add(older, wants []schema.GroupVersion, most int) {
	if !l.completed {
		l.named = l.ids
	}
	l.unlisted = unlisted{completed: true, named: l.named, wants: wants, expected: map[schema.GroupVersion]bool{}, names: namesOf(l.named)}
	l.ids = slices.Clone(l.named)
	room := func(id schema.GroupVersion) bool {
		return validName(l.path, id) && !l.names[id] && !l.expected[id] && len(l.ids) < most
	}
	for _, id := range older {
		if room(id) {
			l.ids, l.names[id] = append(l.ids, id), true
		}
	}
	for _, id := range wants {
		if room(id) {
			l.ids, l.expected[id] = append(l.ids, id), true
		}
	}
	l.lacking = len(l.ids) == 0 || len(l.expected) > 0 || l.aggregated != nil && len(l.ids) > len(l.aggregated)+len(l.large)
}

func namesOf(ids []schema.GroupVersion) map[schema.GroupVersion]bool {
	names := make(map[schema.GroupVersion]bool, len(ids))
	for _, id := range ids {
		names[id] = true
	}
	return names
}

// Lists reports whether the server lists a group/version, whatever became of its
// document; known is false where it gave no list to this source: a stream told what
// it serves, or nothing did.
func (s *Source) Lists(gv schema.GroupVersion) (listed, known bool) {
	path := pathGroups
	if gv.Group == "" {
		path = pathCore
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.parts[path].list
	if l == nil {
		l = s.listings[path]
	}
	return l != nil && l.names[gv], l != nil
}

// outdated reports whether a list has to be asked for anew, though the server may
// say that it is the same. mu is held.
func (s *Source) outdated(l *listing) bool {
	if l == nil || s.cfg.GroupVersions != nil || l.path != pathGroups {
		return false
	}
	return !slices.Equal(l.wants, s.wants) || l.lacking && time.Since(l.asked) >= unlistedLasts
}
