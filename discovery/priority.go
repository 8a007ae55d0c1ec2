package discovery

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// Default priorities (docs/wire.md 2.3), and that of versions of custom resources.
const (
	DefaultGroupPriority   = 1000
	DefaultVersionPriority = 15
	CustomVersionPriority  = 100
)

// Priorities returns the priorities of a built-in group and version in /apis, as kube-apiserver
// gives them to its APIServices (docs/wire.md 2.2). A stable version that Kubernetes does not have
// in a group follows those that it has: a custom resource in such a group does not become the
// preferred version.
func Priorities(group, version string) (groupPriority, versionPriority int32) {
	groupPriority, ok := builtinGroups[group]
	if !ok {
		return DefaultGroupPriority, DefaultVersionPriority
	}
	switch {
	case group == "":
		return groupPriority, 1
	case (group == "flowcontrol.apiserver.k8s.io" || group == "resource.k8s.io") && version == "v1":
		return groupPriority, 21
	case group == "autoscaling" && version == "v2":
		return groupPriority, 30
	}
	switch version {
	case "v1":
		return groupPriority, 15
	case "v1beta1":
		return groupPriority, 9
	case "v1alpha1":
		return groupPriority, 1
	}
	if stable(version) {
		return groupPriority, 1
	}
	return groupPriority, DefaultVersionPriority
}

// stable reports whether a version is neither alpha nor beta.
func stable(version string) bool {
	return !strings.Contains(version, "alpha") && !strings.Contains(version, "beta")
}

// Builtin reports whether a group is one of Kubernetes, or that of Backends. The suffix k8s.io does
// not decide: custom resources have it too (gateway.networking.k8s.io).
func Builtin(group string) bool {
	_, ok := builtinGroups[group]
	return ok
}

var builtinGroups = map[string]int32{
	"apiregistration.k8s.io":       20001,
	"":                             18000,
	"apps":                         17800,
	"events.k8s.io":                17750,
	"authentication.k8s.io":        17700,
	"authorization.k8s.io":         17600,
	"autoscaling":                  17500,
	"batch":                        17400,
	"certificates.k8s.io":          17300,
	"networking.k8s.io":            17200,
	"policy":                       17100,
	"rbac.authorization.k8s.io":    17000,
	"storage.k8s.io":               16800,
	"apiextensions.k8s.io":         16700,
	"admissionregistration.k8s.io": 16700,
	"scheduling.k8s.io":            16600,
	"coordination.k8s.io":          16500,
	"node.k8s.io":                  16300,
	"discovery.k8s.io":             16200,
	"resource.k8s.io":              16200,
	"flowcontrol.apiserver.k8s.io": 16100,
	"internal.apiserver.k8s.io":    16000,
	"storagemigration.k8s.io":      15800,
	"gateway.portico.dev":          15700,
}

// order sorts group/versions in the order of /apis and removes later duplicates.
func order(gvs []GroupVersion) []GroupVersion {
	highest := make(map[string]int32, len(gvs))
	seen := make(map[[2]string]bool, len(gvs))
	sorted := make([]*GroupVersion, 0, len(gvs))
	for i := range gvs {
		gv := &gvs[i]
		if id := [2]string{gv.Group, gv.Version}; !seen[id] {
			seen[id] = true
			highest[gv.Group] = max(highest[gv.Group], gv.GroupPriority)
			sorted = append(sorted, gv)
		}
	}
	slices.SortStableFunc(sorted, func(a, b *GroupVersion) int {
		switch {
		case a.Group == b.Group:
			return cmp.Or(cmp.Compare(b.VersionPriority, a.VersionPriority), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
		case a.Group == "": // it is not part of /apis
			return -1
		case b.Group == "":
			return 1
		}
		return cmp.Or(cmp.Compare(highest[b.Group], highest[a.Group]), cmp.Compare(a.Group, b.Group))
	})
	out := make([]GroupVersion, len(sorted))
	for i, gv := range sorted {
		out[i] = *gv
	}
	return out
}
