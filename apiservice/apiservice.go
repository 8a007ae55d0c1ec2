package apiservice

import (
	"slices"
	"strings"

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
	// AbandonAnnotation lists namespaces, separated by commas, or is "*" for all. A namespace
	// that is being deleted does not wait for objects that only a server of the group/version
	// could delete while no server responds.
	AbandonAnnotation = "gateway.portico.dev/abandon-namespaces"
)

// Name returns the name of the APIService for a group and version.
func Name(group, version string) string { return version + "." + group }

// IsAutomanaged reports whether the gateway made the APIService and may write it.
func IsAutomanaged(a *apireg.APIService) bool { return a.Labels[AutomanagedLabel] != "" }

// Abandons reports whether the value of AbandonAnnotation has a namespace.
func Abandons(value, namespace string) bool {
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item == namespace || item == "*" {
			return true
		}
	}
	return false
}

// Ordered returns the APIServices in the order of discovery (docs/wire.md 2.2): groups by their
// highest groupPriorityMinimum, then by name, and inside each its versions by versionPriority,
// then by Kubernetes' order of version names.
func Ordered(services []*apireg.APIService) []*apireg.APIService {
	return slices.Concat(helper.SortedByGroupAndVersion(slices.Clone(services))...)
}
