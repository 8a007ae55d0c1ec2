package apiservice

import (
	"slices"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
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

// Ordered returns the APIServices in the order of discovery (docs/wire.md 2.2): groups by their
// highest groupPriorityMinimum, then by name, and inside each its versions by versionPriority,
// then by Kubernetes' order of version names.
func Ordered(services []*apireg.APIService) []*apireg.APIService {
	return slices.Concat(helper.SortedByGroupAndVersion(slices.Clone(services))...)
}
