package sources

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A server may have a group/version that it does not list: servers built on
// custom-metrics-apiserver list nothing in the v2 form. Such a group/version is asked for
// only if an APIService registers it (Want).

// unlistedLasts is how old an index may get if not everything that is wanted is in it: it
// does not show changes of the rest.
const unlistedLasts = time.Minute

// Want sets the group/versions that APIServices register for the server. From the next
// Check on those that it does not list are fetched as well; that it does not have one is no
// failure. It does nothing for a source of some group/versions only.
func (s *Source) Want(gvs []schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.wants, gvs) {
		s.wants = slices.Clone(gvs)
	}
}

// Refetch has the document of a wanted group/version fetched with the next Check, whatever
// the result was before: another check found that the server has it.
func (s *Source) Refetch(gv schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.wants, gv) {
		return
	}
	if s.refetch == nil {
		s.refetch = map[schema.GroupVersion]bool{}
	}
	s.refetch[gv] = true
}

// unlisted is what a list is completed with.
type unlisted struct {
	completed bool
	// wants are the group/versions that were wanted then, and expected are those of
	// them that the server does not list.
	wants    []schema.GroupVersion
	expected map[schema.GroupVersion]bool
	// names are all that the server lists.
	names map[schema.GroupVersion]bool
}

// withUnlisted returns a list, in its place, with what is wanted and not in it.
func (s *Source) withUnlisted(l *index) *index {
	if l.completed || s.cfg.GroupVersions != nil || l.path != pathGroups {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *l
	next.expect(s.wants, s.cfg.Limits.GroupVersions)
	if s.indexes[l.path] == l {
		s.indexes[l.path] = &next
	}
	return &next
}

// expect adds what is wanted to a list that nothing else refers to, up to a number of
// group/versions.
func (l *index) expect(wants []schema.GroupVersion, most int) {
	l.unlisted = unlisted{completed: true, wants: wants, expected: map[schema.GroupVersion]bool{}, names: namesOf(l.ids)}
	l.ids = slices.Clone(l.ids)
	for _, id := range wants {
		if validName(l.path, id) && !l.names[id] && !l.expected[id] && len(l.ids) < most {
			l.ids, l.expected[id] = append(l.ids, id), true
		}
	}
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
		l = s.indexes[path]
	}
	return l != nil && l.names[gv], l != nil
}

// outdated reports whether a list has to be asked for anew, though the server may
// say that it is the same. mu is held.
func (s *Source) outdated(l *index) bool {
	if l == nil || s.cfg.GroupVersions != nil || l.path != pathGroups {
		return false
	}
	return !slices.Equal(l.wants, s.wants) || len(l.expected) > 0 && time.Since(l.asked) >= unlistedLasts
}
