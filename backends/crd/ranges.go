package crd

import "slices"

// builtinPaths returns the storage path prefixes of what other servers keep:
// the built-in kinds (k8s.io/kubernetes pkg/controlplane/storageversionhashdata
// lists them), also those that Portico does not serve, for the storage may have
// been filled by others; and Portico's own. None of them can hold a custom
// resource: those begin with a group, which has a dot in it.
func builtinPaths() []string {
	paths := []string{
		"apiregistration.k8s.io", "gateway.portico.dev", "portico",
		"certificatesigningrequests", "clusterrolebindings", "clusterroles", "clustertrustbundles", "configmaps",
		"controllerrevisions", "controllers", "cronjobs", "csidrivers", "csinodes", "csistoragecapacities",
		"daemonsets", "deployments", "deviceclasses", "devicetaintrules", "endpointslices", "events", "flowschemas",
		"horizontalpodautoscalers", "ingress", "ingressclasses", "ipaddresses", "jobs", "leasecandidates", "leases",
		"limitranges", "masterleases", "minions", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"mutatingwebhookconfigurations", "namespaces", "networkpolicies", "persistentvolumeclaims",
		"persistentvolumes", "podcertificaterequests", "poddisruptionbudgets", "pods", "podtemplates",
		"priorityclasses", "prioritylevelconfigurations", "ranges", "replicasets", "resourceclaims",
		"resourceclaimtemplates", "resourcequotas", "resourceslices", "rolebindings", "roles", "runtimeclasses",
		"secrets", "serviceaccounts", "servicecidrs", "services", "statefulsets", "storageclasses",
		"storageversionmigrations", "storageversions", "validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "validatingwebhookconfigurations", "volumeattachments",
		"volumeattributesclasses", "workloads",
	}
	for i := range paths {
		paths[i] += "/"
	}
	slices.Sort(paths)
	return paths
}
