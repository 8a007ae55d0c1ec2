package aggregate

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxGroupVersions bounds what a server may list: each may be asked for by itself.
// 2,000 custom resource definitions of a group each are half of it.
const maxGroupVersions = 4096

// listing is what a server's answer at one path names. Immutable.
type listing struct {
	path, mark string
	turn       int // of the part when it was asked for
	ids        []schema.GroupVersion
	// aggregated is what the v2 form says of them; nil: there is none. It is of
	// what else the server lists as well.
	aggregated map[schema.GroupVersion]version
	// document is the answer itself where that is what is wanted of the server:
	// the legacy form of ids' only one.
	document []metav1.APIResource
	// invalid are those that are not in ids because of their names.
	invalid []Unread
	// asked is when the server gave it.
	asked time.Time
	unlisted
}

// lone reports whether the v2 form says nothing of a group/version.
func (l *listing) lone(id schema.GroupVersion) bool {
	_, ok := l.aggregated[id]
	return !ok
}

// version is what the v2 form says of a group/version.
type version struct {
	resources []apidiscovery.APIResourceDiscovery
	stale     bool
}

// list asks the server what it has at a path, and keeps for reading what it says
// if that is new. While a stream tells of it, it is not.
func (s *Source) list(ctx context.Context, path string) error {
	known, turn := s.latest(path)
	accept := acceptLegacy
	if s.cfg.GroupVersions == nil {
		accept = acceptAggregated
	}
	a, err := s.get(ctx, path, accept, known)
	if err != nil {
		return err
	}
	l := &listing{path: path, turn: turn, asked: time.Now()}
	switch {
	case a.code == http.StatusNotModified && isETag(known):
		return nil
	case a.code == http.StatusNotFound && path == pathCore:
		l.mark = "none" // a server without the core group
	case a.code != http.StatusOK:
		return badStatus(a)
	default:
		l.mark = a.mark()
	}
	if l.mark == known {
		return nil
	}
	if a.code == http.StatusOK {
		if err := s.parse(l, a); err != nil {
			return err
		}
	}
	l.names = namesOf(l.ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts[path].turn == turn && !s.toldOf(path) {
		s.listings[path] = l
	}
	return nil
}

// latest returns what identifies the server's last answer at a path, read or not,
// and the turn of what is read.
func (s *Source) latest(path string) (mark string, turn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[path]
	l := s.listings[path]
	switch {
	case l != nil:
		return l.mark, p.turn
	case s.outdated(p.list):
		return "", p.turn
	}
	return p.mark, p.turn
}

// listing returns what is to be read under a path; nil: nothing is.
func (s *Source) listing(path string) *listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listings[path]
}

// parse takes an answer into a listing.
func (s *Source) parse(l *listing, a *answer) (err error) {
	switch {
	case s.cfg.GroupVersions != nil:
		at := slices.IndexFunc(s.cfg.GroupVersions, func(gv schema.GroupVersion) bool { return groupVersionPath(gv) == l.path })
		l.ids = s.cfg.GroupVersions[at : at+1]
		l.document, err = a.legacy(l.ids[0])
	case a.aggregated:
		l.aggregated, err = a.versions()
		for gv := range l.aggregated {
			l.ids = append(l.ids, gv)
		}
		slices.SortFunc(l.ids, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	case l.path == pathCore:
		core := &metav1.APIVersions{}
		if err = a.decode(core); err == nil {
			err = a.expect(kindVersions, core.TypeMeta, core.Versions != nil)
		}
		for _, v := range core.Versions {
			l.ids = append(l.ids, schema.GroupVersion{Version: v})
		}
	default:
		l.ids, err = a.groups()
	}
	if err == nil && len(l.ids) > maxGroupVersions {
		err = fmt.Errorf("%s lists more than %d group/versions", a.url, maxGroupVersions)
	}
	if err == nil && s.cfg.GroupVersions == nil {
		l.reject()
		seen := make(map[schema.GroupVersion]bool, len(l.ids))
		l.ids = slices.DeleteFunc(l.ids, func(id schema.GroupVersion) bool {
			again := seen[id]
			seen[id] = true
			return again
		})
	}
	return err
}

// groups decodes the older list of groups.
func (a *answer) groups() (ids []schema.GroupVersion, err error) {
	groups := &metav1.APIGroupList{}
	if err := a.decode(groups); err != nil {
		return nil, err
	}
	if err := a.expect(kindGroups, groups.TypeMeta, groups.Groups != nil); err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			ids = append(ids, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
	}
	return ids, nil
}

// versions decodes the v2 form.
func (a *answer) versions() (map[schema.GroupVersion]version, error) {
	list := &apidiscovery.APIGroupDiscoveryList{}
	if err := a.decode(list); err != nil {
		return nil, err
	}
	if err := a.expect(kindGroupsV2, list.TypeMeta, list.Items != nil); err != nil {
		return nil, err
	}
	out := map[schema.GroupVersion]version{}
	for _, g := range list.Items {
		for _, v := range g.Versions {
			out[schema.GroupVersion{Group: g.Name, Version: v.Version}] = version{
				resources: complete(v.Resources), stale: v.Freshness == apidiscovery.DiscoveryFreshnessStale,
			}
		}
	}
	return out, nil
}

// legacy decodes the document of one group/version.
func (a *answer) legacy(gv schema.GroupVersion) ([]metav1.APIResource, error) {
	list := &metav1.APIResourceList{}
	if err := a.decode(list); err != nil {
		return nil, err
	}
	if err := a.expect(kindResources, list.TypeMeta, list.APIResources != nil); err != nil {
		return nil, err
	}
	if list.GroupVersion != gv.String() {
		return nil, fmt.Errorf("%s describes %q", a.url, list.GroupVersion)
	}
	// Of those that it has twice, the first counts.
	slices.SortStableFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list.APIResources, func(a, b metav1.APIResource) bool { return a.Name == b.Name }), nil
}

// complete makes sure that responseKind is an object everywhere; older clients
// crash on null (contract 2.3).
func complete(resources []apidiscovery.APIResourceDiscovery) []apidiscovery.APIResourceDiscovery {
	for i := range resources {
		if resources[i].ResponseKind == nil {
			resources[i].ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range resources[i].Subresources {
			if resources[i].Subresources[j].ResponseKind == nil {
				resources[i].Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	if resources == nil {
		resources = []apidiscovery.APIResourceDiscovery{}
	}
	return resources
}

func groupVersionPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return pathCore + "/" + gv.Version
	}
	return pathGroups + "/" + gv.Group + "/" + gv.Version
}
