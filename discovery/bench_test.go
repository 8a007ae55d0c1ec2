package discovery

import (
	"fmt"
	"testing"

	"portico/resource"
	"portico/resource/rest"
)

// customGroup describes a group of custom resources.
func customGroup(group string, resources ...string) []GroupVersion {
	var kinds []*rest.Kind
	for _, r := range resources {
		kinds = append(kinds, &rest.Kind{
			Info:         resource.Info{Group: group, Versions: []string{"v1"}, Resource: r, Kind: "Kind" + r, Namespaced: true},
			Subresources: []rest.Subresource{{Name: "status"}},
		})
	}
	return FromKinds(kinds)
}

// BenchmarkChange adds or removes a group beside 1,000 others, up to the ETag of the documents.
func BenchmarkChange(b *testing.B) {
	const n = 1000
	var gvs []GroupVersion
	for i := range n + 1 {
		gvs = append(gvs, customGroup(fmt.Sprintf("group-%04d.example.com", i), "things")...)
	}
	snapshot, err := Build(gvs, "")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if snapshot, err = BuildAfter(snapshot, gvs[:n+i%2], ""); err != nil {
			b.Fatal(err)
		}
		_ = snapshot.ETag()
	}
}
