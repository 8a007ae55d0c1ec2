package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// GroupVersion describes one group/version of a server. Immutable.
type GroupVersion struct {
	Group, Version string
	// GroupPriority and VersionPriority order /apis; higher comes first.
	GroupPriority, VersionPriority int32
	// Legacy is the unaggregated form, sorted by name.
	Legacy []metav1.APIResource
	// Aggregated is the v2 form, sorted by name.
	Aggregated []apidiscovery.APIResourceDiscovery
	// Stale: the server has been unavailable for longer than the grace period; the last
	// description remains.
	Stale bool
	// Unknown: the server never answered. Absent, together with Unknown: no server has it.
	Unknown, Absent bool
	// Unlisted: the server has it and does not list it; an APIService registers it.
	Unlisted bool
}

// Name returns "group/version", or "version" for the core group.
func (g *GroupVersion) Name() string {
	if g.Group == "" {
		return g.Version
	}
	return g.Group + "/" + g.Version
}

// Same reports whether two descriptions of a group/version share their slices and are alike
// otherwise, except for the priorities: those affect the order only.
func (g *GroupVersion) Same(o *GroupVersion) bool {
	return g.Group == o.Group && g.Version == o.Version && g.Stale == o.Stale && g.Unknown == o.Unknown && g.Absent == o.Absent &&
		g.Unlisted == o.Unlisted && sameSlice(g.Aggregated, o.Aggregated) && sameSlice(g.Legacy, o.Legacy)
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (g *GroupVersion) freshness() apidiscovery.DiscoveryFreshness {
	if g.Stale || g.Unknown {
		return apidiscovery.DiscoveryFreshnessStale
	}
	return apidiscovery.DiscoveryFreshnessCurrent
}

// fullVerbs are the default verbs of a kind, in the order of kube-apiserver's documents.
var fullVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// FromKinds returns the description of kinds, with the priorities of built-in groups.
func FromKinds(kinds []*rest.Kind) []GroupVersion {
	var out []GroupVersion
	index := map[[2]string]int{}
	for _, k := range kinds {
		for _, version := range k.Versions {
			at, ok := index[[2]string{k.Group, version}]
			if !ok {
				at = len(out)
				index[[2]string{k.Group, version}] = at
				gp, vp := Priorities(k.Group, version)
				out = append(out, GroupVersion{Group: k.Group, Version: version, GroupPriority: gp, VersionPriority: vp})
			}
			out[at].Legacy = append(out[at].Legacy, legacyResources(k, version)...)
		}
	}
	for i := range out {
		SortLegacy(out[i].Legacy)
		out[i].Aggregated = Aggregate(out[i].Group, out[i].Version, out[i].Legacy)
	}
	return out
}

// legacyResources returns the entries of one kind in one version.
func legacyResources(k *rest.Kind, version string) []metav1.APIResource {
	verbs := k.Verbs
	if k.Virtual() && verbs == nil {
		verbs = []string{"create"}
	}
	if verbs == nil {
		verbs = fullVerbs
	}
	main := metav1.APIResource{
		Name: k.Resource, SingularName: k.SingularName(), Namespaced: k.Namespaced, Kind: k.Kind,
		Verbs: verbs, ShortNames: k.ShortNames, Categories: k.Categories,
	}
	if !k.Virtual() {
		main.StorageVersionHash = StorageVersionHash(&k.Info)
	}
	out := []metav1.APIResource{main}
	for _, sub := range k.Subresources {
		entry := metav1.APIResource{
			Name: k.Resource + "/" + sub.Name, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: sub.Verbs,
		}
		if entry.Verbs == nil {
			entry.Verbs = []string{"get", "patch", "update"}
		}
		if !sub.GVK.Empty() && sub.GVK.GroupVersion() == k.GVK(version).GroupVersion() {
			entry.Kind = sub.GVK.Kind
		} else if !sub.GVK.Empty() {
			entry.Group, entry.Version, entry.Kind = sub.GVK.Group, sub.GVK.Version, sub.GVK.Kind
		}
		out = append(out, entry)
	}
	return out
}

// StorageVersionHash returns a value by which clients detect that the storage version of a resource
// changed: base64 of the first 8 bytes of SHA-256 over group/version/kind, as in
// k8s.io/apiserver/pkg/endpoints/discovery/storageversionhash.go.
func StorageVersionHash(info *resource.Info) string {
	sum := sha256.Sum256([]byte(info.Group + "/" + info.Storage() + "/" + info.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// SortLegacy sorts resources by name. Subresources stay in their order, behind their resource.
func SortLegacy(list []metav1.APIResource) {
	slices.SortStableFunc(list, func(a, b metav1.APIResource) int {
		of, sub, _ := strings.Cut(a.Name, "/")
		other, otherSub, _ := strings.Cut(b.Name, "/")
		return cmp.Or(strings.Compare(of, other), min(len(sub), 1)-min(len(otherSub), 1))
	})
}

// Aggregate derives the aggregated form from the legacy one. A subresource without its parent in the
// list gets a stub parent (docs/wire.md 2.3).
func Aggregate(group, version string, legacy []metav1.APIResource) []apidiscovery.APIResourceDiscovery {
	out := []apidiscovery.APIResourceDiscovery{}
	index := map[string]int{}
	parent := func(name string) *apidiscovery.APIResourceDiscovery {
		at, ok := index[name]
		if !ok {
			at = len(out)
			index[name] = at
			out = append(out, apidiscovery.APIResourceDiscovery{Resource: name, ResponseKind: &metav1.GroupVersionKind{}})
		}
		return &out[at]
	}
	for i := range legacy {
		r := &legacy[i]
		kind := responseKind(group, version, r)
		name, sub, isSub := strings.Cut(r.Name, "/")
		p := parent(name)
		scope := apidiscovery.ScopeCluster
		if r.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		if isSub {
			if p.Scope == "" {
				p.Scope = scope
			}
			p.Subresources = append(p.Subresources, apidiscovery.APISubresourceDiscovery{
				Subresource: sub, ResponseKind: kind, Verbs: r.Verbs,
			})
			continue
		}
		subs := p.Subresources
		*p = apidiscovery.APIResourceDiscovery{
			Resource: name, ResponseKind: kind, Scope: scope, SingularResource: r.SingularName,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories, Subresources: subs,
		}
	}
	slices.SortFunc(out, func(a, b apidiscovery.APIResourceDiscovery) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// responseKind returns the kind of a resource, empty if it is unknown: client-go skips a resource
// with an empty one, and would take {group, version, ""} for a kind without a name (docs/wire.md 2.3).
func responseKind(group, version string, r *metav1.APIResource) *metav1.GroupVersionKind {
	if r.Kind == "" {
		return &metav1.GroupVersionKind{}
	}
	kind := &metav1.GroupVersionKind{Group: group, Version: version, Kind: r.Kind}
	if r.Version != "" { // a kind of another group, possibly of the core group
		kind.Group, kind.Version = r.Group, r.Version
	}
	return kind
}

// Flatten derives the legacy form from the aggregated one, without storageVersionHash.
func Flatten(group, version string, aggregated []apidiscovery.APIResourceDiscovery) []metav1.APIResource {
	out := []metav1.APIResource{}
	elsewhere := func(entry *metav1.APIResource, kind *metav1.GroupVersionKind) {
		if kind == nil {
			return
		}
		entry.Kind = kind.Kind
		if kind.Version != "" && (kind.Group != group || kind.Version != version) {
			entry.Group, entry.Version = kind.Group, kind.Version
		}
	}
	for _, r := range aggregated {
		namespaced := r.Scope == apidiscovery.ScopeNamespace
		if len(r.Verbs) > 0 { // else a stub parent
			entry := metav1.APIResource{
				Name: r.Resource, SingularName: r.SingularResource, Namespaced: namespaced,
				Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
			}
			elsewhere(&entry, r.ResponseKind)
			out = append(out, entry)
		}
		for _, s := range r.Subresources {
			entry := metav1.APIResource{Name: r.Resource + "/" + s.Subresource, Namespaced: namespaced, Verbs: s.Verbs}
			elsewhere(&entry, s.ResponseKind)
			out = append(out, entry)
		}
	}
	SortLegacy(out)
	return out
}
