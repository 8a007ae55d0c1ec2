package discovery

import (
	"bytes"
	"cmp"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"
)

// Snapshot is every discovery document of a server at one moment, encoded. It
// is immutable and safe for concurrent use.
type Snapshot struct {
	// GroupVersions in the order of /apis; the core group first.
	GroupVersions []GroupVersion

	core, groups     *document            // /api, /apis
	coreV2, groupsV2 *document            // the same, aggregated
	group            map[string]*document // /apis/G
	groupVersion     map[string]*document // /apis/G/V, /api/v1: by GroupVersion.Name
}

// document is one discovery document, as JSON and, once somebody asks, in the
// other encodings.
type document struct {
	object runtime.Object
	json   []byte
	etag   string // quoted upper-hex SHA-512 of json
	// unknown: the server never answered; there is nothing to show but a 503.
	unknown bool

	yaml, protobuf func() ([]byte, error)
}

// Build makes the snapshot of all group/versions. address is the host:port that
// /api tells clients to use. The order of gvs does not matter; of two entries
// for one group/version the first wins.
func Build(gvs []GroupVersion, address string) (*Snapshot, error) {
	s := &Snapshot{group: map[string]*document{}, groupVersion: map[string]*document{}}
	s.GroupVersions = order(gvs)
	core := &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}},
	}
	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	coreV2, groupsV2 := newAggregated(), newAggregated()
	b := &builder{}
	for i := range s.GroupVersions {
		gv := &s.GroupVersions[i]
		s.groupVersion[gv.Name()] = b.groupVersion(gv)
		if gv.Group == "" {
			core.Versions = append(core.Versions, gv.Version)
			addAggregated(coreV2, gv)
			continue
		}
		addGroup(groups, gv)
		addAggregated(groupsV2, gv)
	}
	for i := range groups.Groups {
		one := groups.Groups[i]
		one.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		s.group[one.Name] = b.document(&one)
	}
	s.core, s.groups = b.document(core), b.document(groups)
	s.coreV2, s.groupsV2 = b.document(coreV2), b.document(groupsV2)
	return s, b.err
}

// ETag identifies the snapshot: that of its aggregated /apis.
func (s *Snapshot) ETag() string { return s.groupsV2.etag }

// Paths returns every group and version path, for the index at "/".
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

// order sorts group/versions as /apis lists them and drops later duplicates.
func order(gvs []GroupVersion) []GroupVersion {
	highest := map[string]int32{}
	seen := map[string]bool{}
	var out []GroupVersion
	for _, gv := range gvs {
		if seen[gv.Name()] {
			continue
		}
		seen[gv.Name()] = true
		highest[gv.Group] = max(highest[gv.Group], gv.GroupPriority)
		out = append(out, gv)
	}
	slices.SortStableFunc(out, func(a, b GroupVersion) int {
		if a.Group != b.Group {
			// The core group stands first; it is not part of /apis.
			return cmp.Or(boolCompare(b.Group == "", a.Group == ""), cmp.Compare(highest[b.Group], highest[a.Group]), cmp.Compare(a.Group, b.Group))
		}
		return cmp.Or(cmp.Compare(b.VersionPriority, a.VersionPriority), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
	})
	return out
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func newAggregated() *apidiscovery.APIGroupDiscoveryList {
	return &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscovery.APIGroupDiscovery{},
	}
}

func addGroup(list *metav1.APIGroupList, gv *GroupVersion) {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.Name(), Version: gv.Version}
	if n := len(list.Groups); n > 0 && list.Groups[n-1].Name == gv.Group {
		list.Groups[n-1].Versions = append(list.Groups[n-1].Versions, v)
		return
	}
	list.Groups = append(list.Groups, metav1.APIGroup{
		Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
	})
}

func addAggregated(list *apidiscovery.APIGroupDiscoveryList, gv *GroupVersion) {
	v := apidiscovery.APIVersionDiscovery{Version: gv.Version, Resources: gv.Aggregated, Freshness: gv.freshness()}
	if n := len(list.Items); n > 0 && list.Items[n-1].Name == gv.Group {
		list.Items[n-1].Versions = append(list.Items[n-1].Versions, v)
		return
	}
	list.Items = append(list.Items, apidiscovery.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscovery.APIVersionDiscovery{v},
	})
}

// builder encodes documents and keeps the first error.
type builder struct{ err error }

func (b *builder) groupVersion(gv *GroupVersion) *document {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.Name(), APIResources: gv.Legacy,
	}
	if gv.Group == "" {
		list.APIVersion = "" // contract 2.1: absent for core
	}
	if list.APIResources == nil {
		list.APIResources = []metav1.APIResource{}
	}
	d := b.document(list)
	d.unknown = gv.Unknown
	return d
}

func (b *builder) document(obj runtime.Object) *document {
	data, err := json.Marshal(obj)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("encode discovery document: %w", err)
	}
	return &document{
		object: obj, json: append(data, '\n'), etag: fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(data))),
		yaml:     sync.OnceValues(func() ([]byte, error) { return yaml.JSONToYAML(data) }),
		protobuf: sync.OnceValues(func() ([]byte, error) { return encodeProtobuf(obj) }),
	}
}

func encodeProtobuf(obj runtime.Object) ([]byte, error) {
	var buf bytes.Buffer
	// The serializer needs no scheme to encode: the objects name their kinds.
	if err := protobuf.NewSerializer(nil, nil).Encode(obj, &buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Equal reports whether two snapshots show the same in every document.
func (s *Snapshot) Equal(o *Snapshot) bool {
	if s.groupsV2.etag != o.groupsV2.etag || s.coreV2.etag != o.coreV2.etag || s.groups.etag != o.groups.etag ||
		s.core.etag != o.core.etag || len(s.groupVersion) != len(o.groupVersion) {
		return false
	}
	for name, d := range s.groupVersion {
		if other := o.groupVersion[name]; other == nil || other.etag != d.etag || other.unknown != d.unknown {
			return false
		}
	}
	return true
}
