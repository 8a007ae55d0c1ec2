package sources

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// index is the answer of a server at one path of Source.paths. Immutable.
type index struct {
	path   string
	etag   string // or the digest of the body
	ids    []schema.GroupVersion
	listed map[schema.GroupVersion]bool // ids as a set
	// v2 is the aggregated form of ids; nil: the server has none.
	v2 map[schema.GroupVersion]version
	// document is the answer itself where the path is that of one group/version.
	document []metav1.APIResource
	// truncated are the ids whose descriptions exceed a limit, dropped is how many
	// group/versions are left out, and invalid are those with invalid names.
	truncated map[schema.GroupVersion]bool
	dropped   int
	invalid   []Unread
}

// version is the aggregated form of a group/version.
type version struct {
	resources []apidiscovery.APIResourceDiscovery
	stale     bool
}

// requestIndex requests the index of a path and stores it if it is new.
func (s *Source) requestIndex(ctx context.Context, path string) error {
	etag := s.indexETag(path)
	accept := acceptLegacy
	if s.cfg.GroupVersions == nil {
		accept = acceptAggregated
	}
	a, err := s.do(ctx, request{path: path, accept: accept, etag: etag, limit: s.cfg.Limits.Document, truncate: true, probe: true})
	if err != nil {
		return err
	}
	l := &index{path: path, listed: map[schema.GroupVersion]bool{}, truncated: map[schema.GroupVersion]bool{}}
	switch {
	case a.code == http.StatusNotModified && isETag(etag):
		return nil
	case a.code == http.StatusNotFound && path == pathCore:
		l.etag = "none" // a server without the core group
	case a.code != http.StatusOK:
		return badStatus(a)
	default:
		l.etag = a.tag()
	}
	if l.etag == etag {
		return nil
	}
	if a.code == http.StatusOK {
		if err := s.decodeIndex(l, a); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.following || path != pathGroups {
		s.indexes[path], s.outdated = l, true
	}
	return nil
}

// indexETag returns the ETag or digest of the last answer at a path, or of the last stream.
func (s *Source) indexETag(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.indexes[path]; l != nil {
		return l.etag
	}
	if r := s.results[path]; r != nil {
		return r.etag
	}
	return ""
}

func (s *Source) decodeIndex(l *index, a *answer) (err error) {
	limits := &s.cfg.Limits
	switch {
	case s.cfg.GroupVersions != nil:
		at := slices.IndexFunc(s.cfg.GroupVersions, func(gv schema.GroupVersion) bool { return groupVersionPath(gv) == l.path })
		id := s.cfg.GroupVersions[at]
		l.ids = []schema.GroupVersion{id}
		l.listed[id] = true
		l.document, l.truncated[id], err = a.decodeResources(id, limits)
		return err
	case a.aggregated:
		return l.decodeV2(a, limits)
	case l.path == pathCore:
		return l.decodeVersions(a, limits)
	}
	return l.decodeGroups(a, limits)
}

// add adds a group/version unless it is a duplicate, invalid or beyond the limits.
func (l *index) add(id schema.GroupVersion, limits *Limits) bool {
	switch {
	case l.listed[id]:
		return false
	case len(l.ids)+len(l.invalid) >= limits.GroupVersions:
		l.dropped++
		return false
	case !validName(l.path, id):
		l.invalid = append(l.invalid, invalid(id))
		return false
	}
	l.listed[id] = true
	l.ids = append(l.ids, id)
	return true
}

// decodeVersions decodes an APIVersions: the versions of the core group.
func (l *index) decodeVersions(a *answer, limits *Limits) error {
	return a.decodeList(kindVersions, "versions", func(item json.RawMessage) error {
		var version string
		err := json.Unmarshal(item, &version)
		l.add(schema.GroupVersion{Version: version}, limits)
		return err
	})
}

// decodeGroups decodes an APIGroupList.
func (l *index) decodeGroups(a *answer, limits *Limits) error {
	return a.decodeList(kindGroups, "groups", func(item json.RawMessage) error {
		if limits.exceededBy(item) {
			l.dropped++
			return nil
		}
		var g metav1.APIGroup
		if err := json.Unmarshal(item, &g); err != nil {
			return err
		}
		for _, v := range g.Versions {
			l.add(schema.GroupVersion{Group: g.Name, Version: v.Version}, limits)
		}
		return nil
	})
}

// decodeV2 decodes an APIGroupDiscoveryList. Of groups beyond the limits it keeps the names.
func (l *index) decodeV2(a *answer, limits *Limits) error {
	l.v2 = map[schema.GroupVersion]version{}
	memory := limits.Memory
	err := a.decodeList(kindGroupsV2, "items", func(item json.RawMessage) error {
		if memory <= 0 || limits.exceededBy(item) {
			return l.decodeNames(item, limits)
		}
		var g apidiscovery.APIGroupDiscovery
		if err := json.Unmarshal(item, &g); err != nil {
			return err
		}
		for _, v := range g.Versions {
			id := schema.GroupVersion{Group: g.Name, Version: v.Version}
			if !l.add(id, limits) {
				continue
			}
			if memory -= discovery.AggregatedSize(v.Resources); memory < 0 {
				l.truncated[id] = true
				continue
			}
			l.v2[id] = version{resources: complete(v.Resources), stale: v.Freshness == apidiscovery.DiscoveryFreshnessStale}
		}
		return nil
	})
	slices.SortFunc(l.ids, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return err
}

// decodeNames adds the names of the versions of a group that is too large to decode.
func (l *index) decodeNames(item []byte, limits *Limits) error {
	if len(item) > limits.Group || len(l.ids) >= limits.GroupVersions {
		l.dropped++
		return nil
	}
	var g struct {
		Metadata struct{ Name string }
		Versions []struct{ Version string }
	}
	if err := json.Unmarshal(item, &g); err != nil {
		return err
	}
	for _, v := range g.Versions {
		if id := (schema.GroupVersion{Group: g.Metadata.Name, Version: v.Version}); l.add(id, limits) {
			l.truncated[id] = true
		}
	}
	return nil
}

// decodeResources decodes the APIResourceList of one group/version up to the limits;
// truncated reports that there is more.
func (a *answer) decodeResources(gv schema.GroupVersion, limits *Limits) (list []metav1.APIResource, truncated bool, err error) {
	list = []metav1.APIResource{}
	elements, memory := limits.Elements, limits.Memory
	truncated = a.truncated
	d, err := a.decodeArray(kindResources, "resources", func(item json.RawMessage) error {
		if elements -= countElements(item); elements < 0 || memory < 0 {
			truncated = true
			return nil
		}
		var r metav1.APIResource
		err := json.Unmarshal(item, &r)
		list = append(list, r)
		memory -= discovery.LegacySize(list[len(list)-1:])
		return err
	})
	if err == nil && d.groupVersion != gv.String() {
		err = fmt.Errorf("%s describes %q", a.url, d.groupVersion)
	}
	if err != nil {
		return nil, false, err
	}
	// The first of two resources with one name counts.
	slices.SortStableFunc(list, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list, func(a, b metav1.APIResource) bool { return a.Name == b.Name }), truncated, nil
}

// complete sets responseKind wherever it is missing: older clients crash on null
// (docs/wire.md 2.3).
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
