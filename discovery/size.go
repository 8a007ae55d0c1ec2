package discovery

import (
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sizes of the structs of both forms and of a string header, in bytes, on 64-bit machines. Separate
// allocations are rounded up to the size class of the allocator.
const (
	sizeLegacy      = 192 // metav1.APIResource
	sizeResource    = 160 // apidiscovery.APIResourceDiscovery
	sizeSubresource = 80  // apidiscovery.APISubresourceDiscovery
	sizeKind        = 48  // metav1.GroupVersionKind
	sizeString      = 16
	sizeVersion     = 256 // GroupVersion and its map entries
)

// Size estimates the memory of a description that was decoded from a document, in bytes: both forms,
// with nothing shared between them.
func (g *GroupVersion) Size() int {
	return sizeVersion + len(g.Group) + len(g.Version) + LegacySize(g.Legacy) + AggregatedSize(g.Aggregated)
}

// LegacySize is Size of the legacy form.
func LegacySize(list []metav1.APIResource) (n int) {
	for i := range list {
		r := &list[i]
		n += sizeLegacy + len(r.Name) + len(r.SingularName) + len(r.Group) + len(r.Version) + len(r.Kind) + len(r.StorageVersionHash) +
			sizeOf(r.Verbs) + sizeOf(r.ShortNames) + sizeOf(r.Categories)
	}
	return n
}

// AggregatedSize is Size of the aggregated form.
func AggregatedSize(list []apidiscovery.APIResourceDiscovery) (n int) {
	for i := range list {
		r := &list[i]
		n += sizeResource + len(r.Resource) + sizeOfKind(r.ResponseKind) + len(r.Scope) + len(r.SingularResource) +
			sizeOf(r.Verbs) + sizeOf(r.ShortNames) + sizeOf(r.Categories)
		for j := range r.Subresources {
			s := &r.Subresources[j]
			n += sizeSubresource + len(s.Subresource) + sizeOfKind(s.ResponseKind) + sizeOf(s.Verbs)
			for k := range s.AcceptedTypes {
				n += sizeOfKind(&s.AcceptedTypes[k])
			}
		}
	}
	return n
}

func sizeOf(list []string) (n int) {
	for _, s := range list {
		n += sizeString + (len(s)+7)&^7
	}
	return n
}

func sizeOfKind(k *metav1.GroupVersionKind) int {
	if k == nil {
		return sizeKind // an empty one is added (docs/wire.md 2.3)
	}
	return sizeKind + len(k.Group) + len(k.Version) + len(k.Kind)
}
