package discovery

import (
	"reflect"
	"slices"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// Groups are in the order of their highest priority, and versions in the order of theirs.
func TestGroupOrder(t *testing.T) {
	s := build(t,
		GroupVersion{Group: "zeta.example.com", Version: "v1", GroupPriority: 1000, VersionPriority: 100},
		GroupVersion{Group: "alpha.example.com", Version: "v1", GroupPriority: 1000, VersionPriority: 100},
		GroupVersion{Group: "many.example.com", Version: "v1beta1", GroupPriority: 2000, VersionPriority: 15},
		GroupVersion{Group: "many.example.com", Version: "v1alpha1", GroupPriority: 900, VersionPriority: 15},
		GroupVersion{Group: "many.example.com", Version: "v2", GroupPriority: 900, VersionPriority: 15},
		GroupVersion{Group: "many.example.com", Version: "v1", GroupPriority: 900, VersionPriority: 15},
		GroupVersion{Group: "many.example.com", Version: "foo1", GroupPriority: 900, VersionPriority: 15},
		GroupVersion{Group: "many.example.com", Version: "v1beta2", GroupPriority: 900, VersionPriority: 20},
		GroupVersion{Group: "apps", Version: "v1", GroupPriority: 17800, VersionPriority: 15},
		GroupVersion{Group: "apps", Version: "v1", GroupPriority: 5, VersionPriority: 5, Stale: true}, // later duplicate
		GroupVersion{Group: "apiregistration.k8s.io", Version: "v1", GroupPriority: 20001, VersionPriority: 15},
		GroupVersion{Version: "v1", GroupPriority: 18000, VersionPriority: 1},
	)
	want := []string{
		"apiregistration.k8s.io/v1", "apps/v1",
		"many.example.com/v1beta2", "many.example.com/v2", "many.example.com/v1", "many.example.com/v1beta1",
		"many.example.com/v1alpha1", "many.example.com/foo1",
		"alpha.example.com/v1", "zeta.example.com/v1",
	}
	var got, gotV2 []string
	for _, g := range decode[metav1.APIGroupList](t, ask(s, "/apis").Body.Bytes()).Groups {
		for _, v := range g.Versions {
			got = append(got, v.GroupVersion)
		}
		if g.PreferredVersion != g.Versions[0] {
			t.Errorf("%s prefers %v", g.Name, g.PreferredVersion)
		}
	}
	for _, g := range decode[apidiscovery.APIGroupDiscoveryList](t, ask(s, "/apis", "Accept", acceptV2).Body.Bytes()).Items {
		for _, v := range g.Versions {
			gotV2 = append(gotV2, g.Name+"/"+v.Version)
			if v.Freshness != apidiscovery.DiscoveryFreshnessCurrent {
				t.Errorf("%s/%s is %s", g.Name, v.Version, v.Freshness)
			}
		}
	}
	if !slices.Equal(got, want) || !slices.Equal(gotV2, want) {
		t.Errorf("order\n   got %v\n    v2 %v\n  want %v", got, gotV2, want)
	}
}

// Built-in groups have the priorities that kube-apiserver gives to its APIServices.
func TestPriorities(t *testing.T) {
	for _, c := range []struct {
		group, version string
		gp, vp         int32
	}{
		{"", "v1", 18000, 1}, {"apps", "v1", 17800, 15}, {"autoscaling", "v2", 17500, 30}, {"autoscaling", "v1", 17500, 15},
		{"flowcontrol.apiserver.k8s.io", "v1", 16100, 21}, {"resource.k8s.io", "v1", 16200, 21}, {"policy", "v1beta1", 17100, 9},
		{"internal.apiserver.k8s.io", "v1alpha1", 16000, 1}, {"widgets.example.com", "v1", 1000, 15},
		{"apiextensions.k8s.io", "v9", 16700, 1}, {"apiextensions.k8s.io", "v1", 16700, 15}, {"autoscaling", "v3", 17500, 1}, {"widgets.example.com", "v9", 1000, 15},
	} {
		if gp, vp := Priorities(c.group, c.version); gp != c.gp || vp != c.vp {
			t.Errorf("%s/%s: %d %d, want %d %d", c.group, c.version, gp, vp, c.gp, c.vp)
		}
	}
}

// The hashes are those of kube-apiserver 1.30 and later for deployments.apps and pods.
func TestStorageVersionHash(t *testing.T) {
	for want, info := range map[string]*resource.Info{
		"8aSe+NMegvE=": {Group: "apps", Versions: []string{"v1"}, Kind: "Deployment"},
		"xPOwRZ+Yhw8=": {Versions: []string{"v1"}, Kind: "Pod"},
	} {
		if got := StorageVersionHash(info); got != want {
			t.Errorf("%s: %s, want %s", info.Kind, got, want)
		}
	}
}

// A subresource without its resource gets a stub resource. A kind that is unknown is an empty one.
func TestAggregateStubParent(t *testing.T) {
	got := Aggregate("g.example.com", "v1", []metav1.APIResource{
		{Name: "orphans/scale", Namespaced: true, Kind: "Scale", Group: "autoscaling", Version: "v1", Verbs: []string{"get"}},
	})
	want := []apidiscovery.APIResourceDiscovery{{
		Resource: "orphans", ResponseKind: &metav1.GroupVersionKind{}, Scope: apidiscovery.ScopeNamespace,
		Subresources: []apidiscovery.APISubresourceDiscovery{{
			Subresource: "scale", ResponseKind: &metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Verbs: []string{"get"},
		}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	kindless := Aggregate("g.example.com", "v1", []metav1.APIResource{{Name: "parts"}, {Name: "parts/status"}, {Name: "parts/scale", Kind: "Scale"}})
	want = []apidiscovery.APIResourceDiscovery{{
		Resource: "parts", ResponseKind: &metav1.GroupVersionKind{}, Scope: apidiscovery.ScopeCluster,
		Subresources: []apidiscovery.APISubresourceDiscovery{
			{Subresource: "status", ResponseKind: &metav1.GroupVersionKind{}},
			{Subresource: "scale", ResponseKind: &metav1.GroupVersionKind{Group: "g.example.com", Version: "v1", Kind: "Scale"}},
		},
	}}
	if !reflect.DeepEqual(kindless, want) {
		t.Errorf("without kinds: %+v", kindless)
	}
	if empty := Aggregate("g", "v1", nil); empty == nil || len(empty) != 0 {
		t.Errorf("nothing becomes %#v, must encode as []", empty)
	}
}

// Each form can be derived from the other.
func TestAggregateFlattenRoundTrip(t *testing.T) {
	legacy := []metav1.APIResource{
		{Name: "bindings", SingularName: "binding", Namespaced: true, Kind: "Binding", Verbs: []string{"create"}},
		{Name: "nodes", SingularName: "node", Kind: "Node", Verbs: fullVerbs, ShortNames: []string{"no"}, Categories: []string{"all"}},
		{Name: "nodes/status", Kind: "Node", Verbs: []string{"get", "patch", "update"}},
		{Name: "orphans/log", Namespaced: true, Kind: "Orphan", Verbs: []string{"get"}},
		{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", Verbs: fullVerbs},
		{Name: "pods/eviction", Namespaced: true, Kind: "Eviction", Group: "policy", Version: "v1", Verbs: []string{"create"}},
	}
	if got := Flatten("", "v1", Aggregate("", "v1", legacy)); !reflect.DeepEqual(got, legacy) {
		t.Errorf("round trip\n got %+v\nwant %+v", got, legacy)
	}
	aggregated := Aggregate("", "v1", legacy)
	if again := Aggregate("", "v1", Flatten("", "v1", aggregated)); !reflect.DeepEqual(again, aggregated) {
		t.Errorf("the other way round\n got %+v\nwant %+v", again, aggregated)
	}
}

// Each version of a kind is described with its subresources.
func TestFromKinds(t *testing.T) {
	gvs := FromKinds([]*rest.Kind{
		{Info: resource.Info{Group: "apps", Versions: []string{"v1", "v1beta1"}, Resource: "deployments", Kind: "Deployment", Namespaced: true},
			Subresources: []rest.Subresource{
				{Name: "scale", GVK: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}},
				{Name: "status"},
			}},
		{Info: resource.Info{Group: "apps", Versions: []string{"v1"}, Resource: "controllerrevisions", Kind: "ControllerRevision", Namespaced: true}},
	})
	if len(gvs) != 2 || gvs[0].Name() != "apps/v1" || gvs[1].Name() != "apps/v1beta1" || gvs[1].VersionPriority != 9 {
		t.Fatalf("got %+v", gvs)
	}
	var names []string
	for _, r := range gvs[0].Legacy {
		names = append(names, r.Name)
		if isSub := r.Name == "deployments/scale" || r.Name == "deployments/status"; isSub != (r.StorageVersionHash == "") {
			t.Errorf("%s has storageVersionHash %q", r.Name, r.StorageVersionHash)
		}
	}
	if want := []string{"controllerrevisions", "deployments", "deployments/scale", "deployments/status"}; !slices.Equal(names, want) {
		t.Errorf("names %v", names)
	}
	if s := gvs[0].Aggregated[1].Subresources[0]; s.ResponseKind.Group != "autoscaling" || !slices.Equal(s.Verbs, []string{"get", "patch", "update"}) {
		t.Errorf("scale is %+v", s)
	}
}
