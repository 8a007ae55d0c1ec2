package crd

import "slices"

// builtinPaths returns the storage path prefixes of other servers: those of the built-in
// kinds (k8s.io/kubernetes pkg/controlplane/storageversionhashdata lists them), including
// kinds that Portico does not serve, as kube-apiserver may have written the storage; and
// Portico's own. None of them can hold a custom resource: the paths of those begin with the
// name of a group, which contains a dot.
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
