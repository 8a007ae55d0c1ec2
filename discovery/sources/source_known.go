package sources

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// Restore makes gvs what is known, unless the server itself has spoken. It
// reports whether it did.
func (s *Source) Restore(gvs []discovery.GroupVersion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.Load() {
		return false
	}
	s.known.Store(&gvs)
	return true
}

// Heard reports whether GroupVersions is what the server said to this source.
// Else it stands in for that: no reason to take anything away that it lacks.
func (s *Source) Heard() bool { return s.heard.Load() }

// Served is GroupVersions; whole says that it is everything the server serves, as
// it said to this source: what is missing there, it does not have. It is not
// while a group/version that the server listed was not to be had of it.
func (s *Source) Served() (gvs []discovery.GroupVersion, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gvs, _ = s.GroupVersions()
	return gvs, s.whole
}

// knownVersions are the group/versions that a source knew at one moment.
type knownVersions map[schema.GroupVersion]discovery.GroupVersion

func (s *Source) knownVersions() knownVersions {
	gvs, _ := s.GroupVersions()
	out := make(knownVersions, len(gvs))
	for _, gv := range gvs {
		out[schema.GroupVersion{Group: gv.Group, Version: gv.Version}] = gv
	}
	return out
}

// keep returns what is known already if gv says the same: whoever made
// something of it recognises it by its slices.
func (k knownVersions) keep(gv discovery.GroupVersion) discovery.GroupVersion {
	old, ok := k[schema.GroupVersion{Group: gv.Group, Version: gv.Version}]
	if !ok || old.Unknown || !reflect.DeepEqual(old.Legacy, gv.Legacy) || !reflect.DeepEqual(old.Aggregated, gv.Aggregated) {
		return gv
	}
	gv.Legacy, gv.Aggregated = old.Legacy, old.Aggregated
	return gv
}

// stale returns a group/version that its server can say nothing of at the
// moment: what was known of it.
func (k knownVersions) stale(id schema.GroupVersion) discovery.GroupVersion {
	gv, ok := k[id]
	if !ok {
		return discovery.GroupVersion{Group: id.Group, Version: id.Version, Unknown: true}
	}
	gv.Stale = true
	return gv
}

// unread returns what is known of a group/version whose document is not at hand,
// given what the list says of it: what it was or, if that is outdated, what the list
// says. ok is false if that is nothing at all.
func (k knownVersions) unread(id schema.GroupVersion, v version) (gv discovery.GroupVersion, ok bool) {
	gv, ok = k[id]
	ok = ok && !gv.Unknown
	switch {
	case v.resources == nil && ok:
		return gv, true
	case v.resources == nil:
		return discovery.GroupVersion{Group: id.Group, Version: id.Version, Unknown: true}, false
	case ok && reflect.DeepEqual(gv.Aggregated, v.resources):
		gv.Stale = false
		return gv, true
	}
	derived := describe(id, discovery.Flatten(id.Group, id.Version, v.resources), v)
	for i := range derived.Legacy { // what the list does not say
		r := &derived.Legacy[i]
		if at := slices.IndexFunc(gv.Legacy, func(old metav1.APIResource) bool { return old.Name == r.Name }); at >= 0 {
			r.StorageVersionHash = gv.Legacy[at].StorageVersionHash
		}
	}
	return derived, true
}
