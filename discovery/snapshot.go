package discovery

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"

	"portico/resource/response"
)

// Snapshot has all discovery documents of a server at one moment. It consists of one encoded part
// per group and shares those of unchanged groups with the snapshot before it; the documents of all
// groups are assembled at their first request. Immutable and safe for concurrent use.
type Snapshot struct {
	// GroupVersions in the order of /apis; the core group first.
	GroupVersions []GroupVersion

	core, groups     *document // /api, /apis
	coreV2, groupsV2 *document // the same, aggregated
	// parts in the order of GroupVersions, and by group.
	parts   []*part
	byGroup map[string]*part
}

// part has the documents of one group. Immutable; snapshots share it while the group does not change.
type part struct {
	versions []GroupVersion
	// listed and aggregated are the encoded items of the group in /apis.
	listed, aggregated []byte
	// group is /apis/G; documents are /apis/G/V of each version.
	group     *document
	documents []*document
}

// Build returns the snapshot of all group/versions, in any order; of two entries for one
// group/version the first counts. address is the host:port in /api.
func Build(gvs []GroupVersion, address string) (*Snapshot, error) {
	return BuildAfter(nil, gvs, address)
}

// BuildAfter is Build with the parts of old, or nil, reused. A group is unchanged if the slices of
// its GroupVersions are the same or their content is equal.
func BuildAfter(old *Snapshot, gvs []GroupVersion, address string) (*Snapshot, error) {
	s := &Snapshot{GroupVersions: order(gvs)}
	var known map[string]*part
	if old != nil {
		known = old.byGroup
	}
	s.parts, s.byGroup = make([]*part, 0, len(known)+1), make(map[string]*part, len(known)+1)
	for rest := s.GroupVersions; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Group == rest[0].Group {
			n++
		}
		p, err := partOf(rest[:n], known[rest[0].Group])
		if err != nil {
			return nil, err
		}
		s.parts = append(s.parts, p)
		s.byGroup[rest[0].Group] = p
		rest = rest[n:]
	}
	s.assemble(address)
	return s, nil
}

// partOf returns the part of a group: the old one (nil: none) if it is equal.
func partOf(versions []GroupVersion, old *part) (*part, error) {
	if old != nil && slices.EqualFunc(old.versions, versions, func(a, b GroupVersion) bool { return a.Same(&b) }) {
		return old, nil
	}
	p, err := newPart(versions)
	if err == nil && old != nil && old.equal(p) {
		return old, nil
	}
	return p, err
}

// split returns the part of the core group, if there is one, and the others.
func (s *Snapshot) split() (core, named []*part) {
	if len(s.parts) > 0 && s.parts[0].versions[0].Group == "" {
		return s.parts[:1], s.parts[1:]
	}
	return nil, s.parts
}

// assemble makes the documents of all groups.
func (s *Snapshot) assemble(address string) {
	core := &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}},
	}
	first, parts := s.split()
	for _, p := range first {
		for i := range p.versions {
			core.Versions = append(core.Versions, p.versions[i].Version)
		}
	}
	s.core = newDocument(core)
	s.groups = joined(groupList(nil), func() runtime.Object { return groupList(parts) }, parts, func(p *part) []byte { return p.listed })
	v2 := func(parts []*part) *document {
		return joined(aggregatedList(nil), func() runtime.Object { return aggregatedList(parts) }, parts, func(p *part) []byte { return p.aggregated })
	}
	s.coreV2, s.groupsV2 = v2(first), v2(parts)
}

// newPart encodes a group. The core group has no document of its own and is not listed.
func newPart(versions []GroupVersion) (*part, error) {
	p := &part{versions: slices.Clone(versions)}
	aggregated, err := json.Marshal(aggregatedGroup(p.versions))
	if err != nil {
		return nil, fmt.Errorf("encode discovery of group %q: %w", versions[0].Group, err)
	}
	p.aggregated = aggregated
	for i := range p.versions {
		p.documents = append(p.documents, groupVersionDocument(&p.versions[i]))
	}
	if versions[0].Group == "" {
		return p, nil
	}
	group := listedGroup(p.versions)
	if p.listed, err = json.Marshal(group); err != nil {
		return nil, fmt.Errorf("encode discovery of group %q: %w", group.Name, err)
	}
	group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	p.group = newDocument(&group)
	return p, nil
}

// ETag returns the ETag of the aggregated /apis.
func (s *Snapshot) ETag() string { return s.groupsV2.etag() }

// Equal reports whether all documents of two snapshots are equal.
func (s *Snapshot) Equal(o *Snapshot) bool {
	if len(s.parts) != len(o.parts) || s.core.etag() != o.core.etag() {
		return false
	}
	for i, p := range s.parts {
		if other := o.parts[i]; p != other && !p.equal(other) {
			return false
		}
	}
	return true
}

// equal reports whether two parts have the same content.
func (p *part) equal(o *part) bool {
	return bytes.Equal(p.aggregated, o.aggregated) && bytes.Equal(p.listed, o.listed) &&
		slices.EqualFunc(p.versions, o.versions, func(a, b GroupVersion) bool {
			// The rest is in the encoded forms.
			return a.Unknown == b.Unknown && a.Absent == b.Absent && (sameSlice(a.Legacy, b.Legacy) || reflect.DeepEqual(a.Legacy, b.Legacy))
		})
}

// version returns the document of one version; nil: there is none.
func (p *part) version(name string) *document {
	if p == nil {
		return nil
	}
	for i := range p.versions {
		if p.versions[i].Version == name {
			return p.documents[i]
		}
	}
	return nil
}

// Paths returns the paths of all groups and versions, for the index at "/".
func (s *Snapshot) Paths() []string {
	paths := []string{"/api", "/apis"}
	for i := range s.GroupVersions {
		gv := &s.GroupVersions[i]
		if gv.Group == "" {
			paths = append(paths, "/api/"+gv.Version)
			continue
		}
		paths = append(paths, "/apis/"+gv.Group, "/apis/"+gv.Name())
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// document is one discovery document. Each encoding and its ETag are made at the first request.
type document struct {
	json, yaml, protobuf func() ([]byte, error)
	etag, protobufETag   func() string
	// unknown: the server never answered, so requests get a 503. absent: the 503 says that no
	// server has it.
	unknown, absent bool
}

// newDocument returns the document of one object.
func newDocument(obj runtime.Object) *document {
	return lazyDocument(func() runtime.Object { return obj }, func() ([]byte, error) {
		data, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encode discovery document: %w", err)
		}
		return data, nil
	})
}

// joined returns the document of a list of items that are already encoded. empty is the list without
// items, which are its last member.
func joined(empty runtime.Object, whole func() runtime.Object, parts []*part, item func(*part) []byte) *document {
	return lazyDocument(whole, func() ([]byte, error) {
		frame, err := json.Marshal(empty)
		if err != nil {
			return nil, fmt.Errorf("encode discovery document: %w", err)
		}
		size := len(frame) + 1
		for _, p := range parts {
			size += len(item(p)) + 1
		}
		frame = bytes.TrimSuffix(frame, []byte("]}"))
		data := append(make([]byte, 0, size), frame...)
		for i, p := range parts {
			if i > 0 {
				data = append(data, ',')
			}
			data = append(data, item(p)...)
		}
		return append(data, "]}"...), nil
	})
}

// lazyDocument returns the document of an object; encode returns its JSON without the newline at the
// end.
func lazyDocument(object func() runtime.Object, encode func() ([]byte, error)) *document {
	d := &document{}
	d.json = sync.OnceValues(func() ([]byte, error) {
		plain, err := encode()
		if err != nil {
			return nil, err
		}
		return append(plain, '\n'), nil
	})
	d.yaml = sync.OnceValues(func() ([]byte, error) {
		data, err := d.json()
		if err != nil {
			return nil, err
		}
		return yaml.JSONToYAML(data)
	})
	d.protobuf = sync.OnceValues(func() ([]byte, error) { return encodeProtobuf(object()) })
	d.etag = sync.OnceValue(func() string {
		data, err := d.json()
		return digest(bytes.TrimSuffix(data, []byte("\n")), err)
	})
	d.protobufETag = sync.OnceValue(func() string { return digest(d.protobuf()) })
	return d
}

// encoded returns the document in an encoding, and its ETag if it has one.
func (d *document) encoded(media response.Media) (data []byte, etag string, err error) {
	switch media {
	case response.YAML:
		data, err = d.yaml()
		return data, "", err
	case response.Protobuf:
		data, err = d.protobuf()
		return data, d.protobufETag(), err
	}
	data, err = d.json()
	return data, d.etag(), err
}

// digest returns the ETag of data, its SHA-512 in upper-case hex, quoted; "" after an error.
func digest(data []byte, err error) string {
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(data)))
}

func encodeProtobuf(obj runtime.Object) ([]byte, error) {
	var buf bytes.Buffer
	// The objects name their kinds, so the serializer needs no scheme.
	if err := protobuf.NewSerializer(nil, nil).Encode(obj, &buf); err != nil {
		return nil, fmt.Errorf("encode discovery document: %w", err)
	}
	return buf.Bytes(), nil
}

func groupVersionDocument(gv *GroupVersion) *document {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.Name(), APIResources: gv.Legacy,
	}
	if gv.Group == "" {
		list.APIVersion = "" // docs/wire.md 2.1: absent for core
	}
	if list.APIResources == nil {
		list.APIResources = []metav1.APIResource{}
	}
	d := newDocument(list)
	d.unknown, d.absent = gv.Unknown, gv.Unknown && gv.Absent
	return d
}

// listedGroup returns the item of a group in /apis.
func listedGroup(versions []GroupVersion) metav1.APIGroup {
	g := metav1.APIGroup{Name: versions[0].Group}
	for i := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: versions[i].Name(), Version: versions[i].Version})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

func groupList(parts []*part) *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, p := range parts {
		list.Groups = append(list.Groups, listedGroup(p.versions))
	}
	return list
}

// aggregatedGroup returns the item of a group in the aggregated /apis.
func aggregatedGroup(versions []GroupVersion) apidiscovery.APIGroupDiscovery {
	g := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: versions[0].Group}}
	for i := range versions {
		gv := &versions[i]
		g.Versions = append(g.Versions, apidiscovery.APIVersionDiscovery{Version: gv.Version, Resources: gv.Aggregated, Freshness: gv.freshness()})
	}
	return g
}

func aggregatedList(parts []*part) *apidiscovery.APIGroupDiscoveryList {
	list := &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscovery.APIGroupDiscovery{},
	}
	for _, p := range parts {
		list.Items = append(list.Items, aggregatedGroup(p.versions))
	}
	return list
}
