package discovery

import (
	"fmt"
	"testing"

	"portico/resource"
	"portico/resource/rest"
)

// manyGroups describes n groups of one custom resource each.
func manyGroups(n int) []GroupVersion {
	gvs := make([]GroupVersion, 0, n)
	for i := range n {
		gvs = append(gvs, customGroup(fmt.Sprintf("group-%04d.example.com", i), "things")...)
	}
	return gvs
}

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

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 1000} {
		gvs := manyGroups(n)
		b.Run(fmt.Sprintf("%d groups", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Build(gvs, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkChange is a group that comes or goes beside n others, until the
// documents are there and followers can be sent it.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10, 1000} {
		gvs := manyGroups(n + 1)
		b.Run(fmt.Sprintf("%d groups", n), func(b *testing.B) {
			b.ReportAllocs()
			snapshot, err := Build(gvs, "")
			if err != nil {
				b.Fatal(err)
			}
			less := false
			for b.Loop() {
				less = !less
				now := gvs
				if less {
					now = gvs[:n]
				}
				if snapshot, err = BuildAfter(snapshot, now, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d groups, and its ETag", n), func(b *testing.B) {
			b.ReportAllocs()
			snapshot, err := Build(gvs, "")
			if err != nil {
				b.Fatal(err)
			}
			less := false
			for b.Loop() {
				less = !less
				now := gvs
				if less {
					now = gvs[:n]
				}
				if snapshot, err = BuildAfter(snapshot, now, ""); err != nil {
					b.Fatal(err)
				}
				_ = snapshot.ETag()
			}
		})
	}
}
