package sources

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// index is what a server's answer at one path lists. Immutable.
type index struct {
	path, mark string
	generation int // of the part when it was requested
	ids        []schema.GroupVersion
	// aggregated is what the v2 form says of them, and of others that the server lists;
	// nil: there is none.
	aggregated map[schema.GroupVersion]version
	// document is the answer itself if a single group/version is wanted: its legacy form.
	document []metav1.APIResource
	// invalid are those that are not in ids because of their names.
	invalid []Unread
	// excess is what the limits leave out; large are those in ids whose descriptions exceed
	// a limit.
	excess
	large map[schema.GroupVersion]bool
	// asked is when the server gave it.
	asked time.Time
	unlisted
}

// lone reports whether the v2 form says nothing of a group/version.
func (l *index) lone(id schema.GroupVersion) bool {
	_, ok := l.aggregated[id]
	return !ok
}

// version is what the v2 form says of a group/version.
type version struct {
	resources []apidiscovery.APIResourceDiscovery
	stale     bool
}

// list fetches the index of a path and keeps it to be read if it is new. It is dropped
// while a stream has the path.
func (s *Source) list(ctx context.Context, path string) error {
	known, generation := s.latest(path)
	accept := acceptLegacy
	if s.cfg.GroupVersions == nil {
		accept = acceptAggregated
	}
	a, err := s.ask(ctx, question{
		method: http.MethodGet, path: path, accept: accept, etag: known, limit: s.cfg.Limits.Document, cut: true, check: true,
	})
	if err != nil {
		return err
	}
	l := &index{path: path, generation: generation, asked: time.Now()}
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
	if s.parts[path].generation == generation && !s.toldOf(path) {
		s.indexes[path] = l
	}
	return nil
}

// latest returns what identifies the server's last answer at a path, read or not,
// and the generation of what is read.
func (s *Source) latest(path string) (mark string, generation int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[path]
	l := s.indexes[path]
	switch {
	case l != nil:
		return l.mark, p.generation
	case s.outdated(p.list):
		return "", p.generation
	}
	return p.mark, p.generation
}

// index returns the index of a path that is to be read; nil: there is none.
func (s *Source) index(path string) *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.indexes[path]
}

// parse decodes an answer into an index.
func (s *Source) parse(l *index, a *answer) (err error) {
	limits := &s.cfg.Limits
	switch {
	case s.cfg.GroupVersions != nil:
		at := slices.IndexFunc(s.cfg.GroupVersions, func(gv schema.GroupVersion) bool { return groupVersionPath(gv) == l.path })
		l.ids = s.cfg.GroupVersions[at : at+1]
		l.document, l.large, err = a.legacy(l.ids[0], limits)
		return err
	case a.aggregated:
		err = l.versions(a, limits)
	case l.path == pathCore:
		err = l.core(a, limits)
	default:
		var groups *index
		if groups, err = a.groups(limits); err == nil {
			l.ids, l.more = groups.ids, groups.more
		}
	}
	if err != nil {
		return err
	}
	l.reject()
	return nil
}

// put adds a group/version, if there is room for it.
func (l *index) put(id schema.GroupVersion, limits *Limits) bool {
	switch {
	case l.names[id]: // the first counts
		return false
	case len(l.ids) >= limits.GroupVersions:
		l.more++
		return false
	case l.names == nil:
		l.names = map[schema.GroupVersion]bool{}
	}
	l.names[id] = true
	l.ids = append(l.ids, id)
	return true
}

// core takes in the versions of the core group.
func (l *index) core(a *answer, limits *Limits) error {
	d, err := a.split("versions")
	if err != nil {
		return err
	}
	if err := a.expect(kindVersions, d.TypeMeta, d.listed); err != nil {
		return err
	}
	for item := d.next(); item != nil; item = d.next() {
		var version string
		if err := a.decodeItem(item, &version); err != nil {
			return err
		}
		l.put(schema.GroupVersion{Version: version}, limits)
	}
	return nil
}

// groups decodes the legacy list of groups: of the index, ids and more are set.
func (a *answer) groups(limits *Limits) (*index, error) {
	d, err := a.split("groups")
	if err != nil {
		return nil, err
	}
	if err := a.expect(kindGroups, d.TypeMeta, d.listed); err != nil {
		return nil, err
	}
	l := &index{}
	for item := d.next(); item != nil; item = d.next() {
		if len(item) > limits.Group || elements(item) > limits.Elements {
			l.more++
			continue
		}
		var g metav1.APIGroup
		if err := a.decodeItem(item, &g); err != nil {
			return nil, err
		}
		for _, v := range g.Versions {
			l.put(schema.GroupVersion{Group: g.Name, Version: v.Version}, limits)
		}
	}
	return l, nil
}

// outline is what an item of the v2 form names, without what it says of that.
type outline struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Versions []struct {
		Version string `json:"version"`
	} `json:"versions"`
}

// versions takes in the v2 form: of groups that are too large, or that there is no
// memory left for, the names.
func (l *index) versions(a *answer, limits *Limits) error {
	d, err := a.split("items")
	if err != nil {
		return err
	}
	if err := a.expect(kindGroupsV2, d.TypeMeta, d.listed); err != nil {
		return err
	}
	l.aggregated = map[schema.GroupVersion]version{}
	l.large = map[schema.GroupVersion]bool{}
	left := limits.Memory
	for item := d.next(); item != nil; item = d.next() {
		if left <= 0 || len(item) > limits.Group || elements(item) > limits.Elements {
			if err := l.name(a, item, limits); err != nil {
				return err
			}
			continue
		}
		var g apidiscovery.APIGroupDiscovery
		if err := a.decodeItem(item, &g); err != nil {
			return err
		}
		for _, v := range g.Versions {
			id := schema.GroupVersion{Group: g.Name, Version: v.Version}
			if !l.put(id, limits) {
				continue
			}
			if left -= discovery.AggregatedSize(v.Resources); left < 0 {
				l.large[id] = true
				continue
			}
			l.aggregated[id] = version{resources: complete(v.Resources), stale: v.Freshness == apidiscovery.DiscoveryFreshnessStale}
		}
	}
	slices.SortFunc(l.ids, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return nil
}

// name takes in the names of a group of which there is too much.
func (l *index) name(a *answer, item []byte, limits *Limits) error {
	if len(item) > limits.Group || len(l.ids) >= limits.GroupVersions {
		l.more++
		return nil
	}
	var g outline
	if err := a.decodeItem(item, &g); err != nil {
		return err
	}
	for _, v := range g.Versions {
		if id := (schema.GroupVersion{Group: g.Metadata.Name, Version: v.Version}); l.put(id, limits) {
			l.large[id] = true
		}
	}
	return nil
}

// decodeItem decodes an item of a list.
func (a *answer) decodeItem(item []byte, into any) error {
	if err := json.Unmarshal(item, into); err != nil {
		return fmt.Errorf("decode answer of %s: %w", a.url, err)
	}
	return nil
}

// legacy decodes the document of one group/version, as far as the limits go; large has
// it if that is not all.
func (a *answer) legacy(gv schema.GroupVersion, limits *Limits) (list []metav1.APIResource, large map[schema.GroupVersion]bool, err error) {
	d, err := a.split("resources")
	if err != nil {
		return nil, nil, err
	}
	if err := a.expect(kindResources, d.TypeMeta, d.listed); err != nil {
		return nil, nil, err
	}
	if d.groupVersion != gv.String() {
		return nil, nil, fmt.Errorf("%s describes %q", a.url, d.groupVersion)
	}
	list = []metav1.APIResource{}
	left, most := limits.Elements, limits.Memory
	cut := a.cut
	for item := d.next(); item != nil; item = d.next() {
		if left -= elements(item); left < 0 || most < 0 {
			cut = true
			break
		}
		var r metav1.APIResource
		if err := a.decodeItem(item, &r); err != nil {
			return nil, nil, err
		}
		list = append(list, r)
		most -= discovery.LegacySize(list[len(list)-1:])
	}
	if cut {
		large = map[schema.GroupVersion]bool{gv: true}
	}
	// Of those that it has twice, the first counts.
	slices.SortStableFunc(list, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list, func(a, b metav1.APIResource) bool { return a.Name == b.Name }), large, nil
}

// complete makes sure that responseKind is an object everywhere; older clients
// crash on null (docs/wire.md 2.3).
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
