package apiservice

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/version"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Group is the API group of APIServices.
const Group = "apiregistration.k8s.io"

const (
	// AutomanagedLabel marks APIServices and Backends that the gateway made
	// (k8s.io/kube-aggregator autoregister.AutoRegisterManagedLabel). A user takes one over
	// by removing the label.
	AutomanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	// OnStart is the value of the label for built-in groups and static Backends.
	OnStart = "onstart"
	// Managed is the value of the label for other groups in the discovery of a Backend.
	Managed = "true"
	// BackendAnnotation names the backend that serves an automanaged APIService.
	BackendAnnotation = "gateway.portico.dev/backend"
)

// Name returns the name of the APIService for a group and version.
func Name(group, version string) string { return version + "." + group }

// IsAutomanaged reports whether the gateway made the APIService and may write it.
func IsAutomanaged(a *apireg.APIService) bool { return a.Labels[AutomanagedLabel] != "" }

// Compare orders APIServices as /apis lists them (docs/wire.md 2.2): by
// groupPriorityMinimum, highest first, then by name.
func Compare(a, b *apireg.APIService) int {
	return cmp.Or(
		cmp.Compare(b.Spec.GroupPriorityMinimum, a.Spec.GroupPriorityMinimum),
		cmp.Compare(a.Name, b.Name),
	)
}

// CompareVersions orders the APIServices of one group: by versionPriority,
// highest first, then by Kubernetes' order of version names, newest first.
func CompareVersions(a, b *apireg.APIService) int {
	return cmp.Or(
		cmp.Compare(b.Spec.VersionPriority, a.Spec.VersionPriority),
		version.CompareKubeAwareVersionStrings(b.Spec.Version, a.Spec.Version),
	)
}

// Ordered returns the APIServices in the order of discovery: groups by their
// highest groupPriorityMinimum, and inside each its versions.
func Ordered(services []*apireg.APIService) []*apireg.APIService {
	all := slices.Clone(services)
	slices.SortFunc(all, Compare)
	var order []string
	groups := map[string][]*apireg.APIService{}
	for _, a := range all {
		g := a.Spec.Group
		if _, ok := groups[g]; !ok {
			order = append(order, g)
		}
		groups[g] = append(groups[g], a)
	}
	out := make([]*apireg.APIService, 0, len(all))
	for _, g := range order {
		slices.SortFunc(groups[g], CompareVersions)
		out = append(out, groups[g]...)
	}
	return out
}
