package routing

import (
	"fmt"
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/resource"
	"portico/resource/rest"
)

// customGroup is a group with one custom resource.
func customGroup(group string) []discovery.GroupVersion {
	return discovery.FromKinds([]*rest.Kind{{
		Info:         resource.Info{Group: group, Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget", Namespaced: true},
		Subresources: []rest.Subresource{{Name: "status"}},
	}})
}

func groupName(i int) string { return fmt.Sprintf("group-%04d.example.com", i) }

// BenchmarkReconcile measures adding or removing one of n APIServices.
func BenchmarkReconcile(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("%d groups", n), func(b *testing.B) {
			b.ReportAllocs()
			var gvs []discovery.GroupVersion
			var services []*apireg.APIService
			for i := range n + 1 {
				gvs = append(gvs, customGroup(groupName(i))...)
				a := custom(gvs[i], "crd")
				apiservice.Set(a, apiservice.Local(), metav1.Now().Time)
				services = append(services, a)
			}
			s := &Controller{log: slog.New(slog.DiscardHandler)}
			s.checker = availability.New(availability.Config{OnChange: func(string, availability.Verdict) {}})
			fakeBackend(b, s, "crd", sources.NewSource(sources.Config{Previous: gvs}))
			less := false
			for b.Loop() {
				less = !less
				now := services
				if less {
					now = services[:n]
				}
				s.SetAPIServices(now)
				s.SetBackends(nil)
				s.Reconcile()
			}
			if got := len(s.documents.Load().GroupVersions); got < n {
				b.Fatalf("%d groups", got)
			}
		})
	}
}
