package sources

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

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
	// v2 is the aggregated form of ids; nil if the server has none, or it was not asked for.
	v2 map[schema.GroupVersion]version
	// document describes the group/version of a path of one group/version, as far as the limits allow. It is nil for other
	// paths, and if there is only an aggregated description, which is beyond the limits.
	document []metav1.APIResource
	// truncated are the ids with descriptions that exceed a limit, dropped is how many
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
		err := s.decodeIndex(l, a)
		if err != nil {
			err = s.readAggregated(ctx, l, etag, err)
		}
		if err != nil {
			return err
		}
		if l.etag == etag {
			return nil
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

// readAggregated is called if the document of the one group/version of l cannot be read, because of cause. It reads the
// description from the aggregated form at /apis instead: kube-aggregator reads that form first, and some servers have no other.
// If that has no current description, it returns cause, or an error that wraps it. A description beyond the limits leaves
// l.document nil. etag identifies the content of the index that is known.
func (s *Source) readAggregated(ctx context.Context, l *index, etag string, cause error) error {
	if s.cfg.GroupVersions == nil {
		return cause
	}
	a, err := s.do(ctx, request{path: pathGroups, accept: acceptAggregated, limit: s.cfg.Limits.Document, truncate: true, probe: true})
	if err != nil || a.code != http.StatusOK || !a.aggregated {
		return cause
	}
	l.etag = "aggregated " + a.tag() // no ETag of the path of l
	if l.etag == etag {
		return nil
	}
	all := &index{path: pathGroups, listed: map[schema.GroupVersion]bool{}, truncated: map[schema.GroupVersion]bool{}}
	if err := all.decodeV2(a, &s.cfg.Limits); err != nil {
		return fmt.Errorf("%w; %w", cause, err)
	}
	id := l.ids[0]
	v := all.v2[id]
	switch {
	case !all.listed[id] && (a.truncated || all.dropped > 0):
		return fmt.Errorf("%w; %s is beyond the limits on the discovery of one server", cause, a.url)
	case !all.listed[id], v.stale:
		return cause
	}
	if l.truncated[id] = all.truncated[id]; !l.truncated[id] { // what is known remains
		l.v2, l.document = map[schema.GroupVersion]version{id: v}, discovery.Flatten(id.Group, id.Version, v.resources)
	}
	return nil
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

const (
	graceDefault = 60 * time.Second
	// maxNamed bounds how many group/versions beyond the limits are named.
	maxNamed = 1000
)

// result is what the server serves under one path, computed from its index and documents or
// from a stream. Immutable once stored.
type result struct {
	etag          string
	groupVersions []discovery.GroupVersion
	unread        []Unread
	// named and dropped are how many group/versions are beyond the limits, in unread and not.
	named, dropped int
	incomplete     bool // something that the server lists is not known
}

// truncate notes that a group/version is beyond the limits.
func (r *result) truncate(id schema.GroupVersion) {
	if r.named == maxNamed {
		r.dropped++
		return
	}
	r.named++
	r.unread = append(r.unread, Unread{id, ErrBeyondLimits})
}

// resultOf computes the result of an index. What could not be fetched remains as known.
func (s *Source) resultOf(l *index, known knownVersions, batch map[schema.GroupVersion]fetched, now time.Time) *result {
	r := &result{etag: l.etag, dropped: l.dropped}
	for _, id := range s.expected(l) {
		gv, ok := discovery.GroupVersion{}, true
		if l.document != nil {
			if gv = known.reuse(describe(id, l.document, l.v2[id])); l.truncated[id] {
				r.truncate(id)
			}
		} else {
			gv, ok = s.groupVersion(r, l, id, known, batch, now)
		}
		if ok {
			gv.Unlisted = !l.listed[id]
			r.groupVersions = append(r.groupVersions, gv)
		}
	}
	r.unread = append(r.unread, l.invalid...)
	r.bound(s.cfg.Limits.Memory, known)
	return r
}

// groupVersion returns the description of one group/version; ok is false if the server does
// not have it or nothing is known of it.
func (s *Source) groupVersion(r *result, l *index, id schema.GroupVersion, known knownVersions, batch map[schema.GroupVersion]fetched, now time.Time) (gv discovery.GroupVersion, ok bool) {
	v, listed, d := l.v2[id], l.listed[id], s.documents[id]
	f, isFetched := batch[id]
	switch {
	case v.stale:
		return known.stale(id), true
	case l.truncated[id]:
		r.truncate(id)
		return known.stale(id), true
	case isFetched && f.err == nil:
		if f.truncated {
			r.truncate(id)
		}
		return known.reuse(describe(id, f.resources, v)), true
	case d != nil && !d.absent.IsZero() && !listed:
		return gv, false
	case d != nil && !d.absent.IsZero():
		// The server lists what it does not have: it may be adding or removing it.
		r.incomplete = true
		gv, ok = known[id]
		gv.Stale = gv.Stale || now.Sub(d.absent) >= s.cfg.Grace
		return gv, ok && !gv.Unknown
	}
	gv, ok = known.withIndex(id, v)
	switch {
	case d != nil && d.err != nil:
		r.unread = append(r.unread, Unread{id, d.err})
		ok = ok || listed
	case !ok:
		r.incomplete = true
	}
	return gv, ok
}

// bound replaces descriptions beyond the memory limit by the known ones or, if those are
// beyond it as well, by the name.
func (r *result) bound(memory int, known knownVersions) {
	for i := range r.groupVersions {
		gv := &r.groupVersions[i]
		if size := gv.Size(); size <= memory {
			memory -= size
			continue
		}
		id := idOf(gv)
		r.truncate(id)
		*gv = known.stale(id)
		if size := gv.Size(); size <= memory {
			memory -= size
		} else {
			*gv = discovery.GroupVersion{Group: id.Group, Version: id.Version, Unknown: true}
		}
	}
}

// describe returns a GroupVersion with both forms.
func describe(id schema.GroupVersion, legacy []metav1.APIResource, v version) discovery.GroupVersion {
	g := discovery.GroupVersion{Group: id.Group, Version: id.Version, Legacy: legacy, Aggregated: v.resources}
	if g.Aggregated == nil {
		g.Aggregated = discovery.Aggregate(id.Group, id.Version, legacy)
	}
	return g
}

func idOf(gv *discovery.GroupVersion) schema.GroupVersion {
	return schema.GroupVersion{Group: gv.Group, Version: gv.Version}
}

// knownVersions are the group/versions of a source at one moment.
type knownVersions map[schema.GroupVersion]discovery.GroupVersion

func (s *Source) knownVersions() knownVersions {
	gvs, _ := s.GroupVersions()
	out := make(knownVersions, len(gvs))
	for i := range gvs {
		out[idOf(&gvs[i])] = gvs[i]
	}
	return out
}

// reuse returns gv with the known slices if they are equal: readers recognise unchanged
// descriptions by them.
func (k knownVersions) reuse(gv discovery.GroupVersion) discovery.GroupVersion {
	old, ok := k[idOf(&gv)]
	if ok && !old.Unknown && reflect.DeepEqual(old.Legacy, gv.Legacy) && reflect.DeepEqual(old.Aggregated, gv.Aggregated) {
		gv.Legacy, gv.Aggregated = old.Legacy, old.Aggregated
	}
	return gv
}

// stale returns the known description, marked stale.
func (k knownVersions) stale(id schema.GroupVersion) discovery.GroupVersion {
	gv, ok := k[id]
	if !ok {
		return discovery.GroupVersion{Group: id.Group, Version: id.Version, Unknown: true}
	}
	gv.Stale = true
	return gv
}

// withIndex returns the description of a group/version without a new document: the known one
// or, where the index says otherwise, one derived from the index. ok is false if there is
// neither.
func (k knownVersions) withIndex(id schema.GroupVersion, v version) (gv discovery.GroupVersion, ok bool) {
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
	for i := range derived.Legacy {
		r := &derived.Legacy[i]
		if at := slices.IndexFunc(gv.Legacy, func(old metav1.APIResource) bool { return old.Name == r.Name }); at >= 0 {
			r.StorageVersionHash = gv.Legacy[at].StorageVersionHash
		}
	}
	return derived, true
}
