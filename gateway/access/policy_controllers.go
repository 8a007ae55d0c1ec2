package access

import rbacv1 "k8s.io/api/rbac/v1"

// controllers adds a role for each controller of kube-controller-manager, bound to its service
// account in kube-system, for a kube-controller-manager that uses Portico as its API server.
func (p *policy) controllers() {
	p.workloadControllers()
	p.podControllers()
	p.serviceControllers()
	p.storageControllers()
	p.clusterControllers()
}

// changeAll are all verbs but deletecollection.
const changeAll = "create delete patch update " + read

// ofPods are the verbs on pods of a controller that creates them.
const ofPods = "create delete list patch watch"

// kindController adds a controller with the rights to its own kind and its status.
func (p *policy) kindController(name, groups, resource, verbs string, more ...rbacv1.PolicyRule) {
	p.controller(name, append([]rbacv1.PolicyRule{
		on(verbs, groups, resource),
		on("update", groups, resource+"/status"), on("update", groups, resource+"/finalizers"), eventRules(),
	}, more...)...)
}

func (p *policy) workloadControllers() {
	const apps, change = "apps extensions", "update " + read
	p.kindController("cronjob-controller", "batch", "cronjobs", change,
		on(changeAll, "batch", "jobs"), on("delete list watch", "-", "pods"))
	p.kindController("daemon-set-controller", apps, "daemonsets", read,
		on("list watch", "-", "nodes"), on(ofPods, "-", "pods"), on("create", "-", "pods/binding"), on(changeAll, "apps", "controllerrevisions"))
	p.kindController("deployment-controller", apps, "deployments", change,
		on(changeAll, apps, "replicasets"), on(change, "-", "pods"))
	p.kindController("job-controller", "batch", "jobs", "patch "+change, on(ofPods, "-", "pods"))
	p.kindController("replicaset-controller", apps, "replicasets", change, on(ofPods, "-", "pods"))
	p.kindController("replication-controller", "-", "replicationcontrollers", change, on(ofPods, "-", "pods"))
	p.kindController("statefulset-controller", "apps", "statefulsets", read,
		on("list watch", "-", "pods"), on("create delete get patch update", "-", "pods"), on("update", "-", "pods/finalizers"),
		on(changeAll, "apps", "controllerrevisions"),
		on("create "+read, "-", "persistentvolumeclaims"), on("delete update", "-", "persistentvolumeclaims"))
	p.controller("ttl-after-finished-controller", on("delete "+read, "batch", "jobs"), eventRules())
	p.controller("disruption-controller",
		on(read, apps, "deployments"), on(read, apps, "replicasets"), on(read, "-", "replicationcontrollers"),
		on(read, "policy", "poddisruptionbudgets"), on(read, "apps", "statefulsets"),
		on("update", "policy", "poddisruptionbudgets/status"), on("patch update", "-", "pods/status"), on("get", "*", "*/scale"), eventRules())
	p.controller("horizontal-pod-autoscaler",
		on(read, "autoscaling", "horizontalpodautoscalers"), on("update", "autoscaling", "horizontalpodautoscalers/status"),
		on("get update", "*", "*/scale"), on("list watch", "-", "pods"), on("list watch", "metrics.k8s.io", "pods"),
		on(read, "custom.metrics.k8s.io", "*"), on(read, "external.metrics.k8s.io", "*"), eventRules())
}

func (p *policy) podControllers() {
	p.controller("device-taint-eviction-controller",
		on("delete "+read, "-", "pods"), on("patch update", "-", "pods/status"),
		on(read, "resource.k8s.io", "resourceclaims"), on(read, "resource.k8s.io", "resourceslices"),
		on(read, "resource.k8s.io", "deviceclasses"), eventRules())
	p.controller("ephemeral-volume-controller",
		on(read, "-", "pods"), on("update", "-", "pods/finalizers"), on("create "+read, "-", "persistentvolumeclaims"), eventRules())
	p.controller("node-controller",
		on("delete patch update "+read, "-", "nodes"), on("patch update", "-", "nodes/status"),
		on("patch update", "-", "pods/status"), on("delete "+read, "-", "pods"), on(read, "coordination.k8s.io", "leases"), eventRules())
	p.controller("pod-garbage-collector",
		on("delete list watch", "-", "pods"), on(read, "-", "nodes"), on("patch", "-", "pods/status"))
	p.controller("resource-claim-controller",
		on(read, "-", "pods"), on("update", "-", "pods/finalizers"), on("create delete "+read, "resource.k8s.io", "resourceclaims"),
		on("patch update", "resource.k8s.io", "resourceclaims resourceclaims/status"), on("patch update", "resource.k8s.io", "resourceclaims/binding"),
		on("patch update", "-", "pods/status"), eventRules())
	p.controller("ttl-controller", on("list patch update watch", "-", "nodes"), eventRules())
}

func (p *policy) serviceControllers() {
	const slices = "create delete update " + read
	p.controller("endpoint-controller",
		on(read, "-", "pods services"), on(slices, "-", "endpoints"), on("create", "-", "endpoints/restricted"), eventRules())
	p.controller("endpointslice-controller",
		on(read, "-", "nodes pods services"), on("update", "-", "services/finalizers"),
		on(slices, "discovery.k8s.io", "endpointslices"), eventRules())
	p.controller("endpointslicemirroring-controller",
		on(read, "-", "endpoints services"), on("update", "-", "services/finalizers"), on("update", "-", "endpoints/finalizers"),
		on(slices, "discovery.k8s.io", "endpointslices"), eventRules())
	p.controller("route-controller", on("list watch", "-", "nodes"), on("patch", "-", "nodes/status"), eventRules())
	p.controller("service-cidrs-controller",
		on("patch update "+read, "networking.k8s.io", "servicecidrs"), on("patch update", "networking.k8s.io", "servicecidrs/finalizers"),
		on("patch update", "networking.k8s.io", "servicecidrs/status"), on(read, "networking.k8s.io", "ipaddresses"), eventRules())
	p.controller("service-controller",
		on(read, "-", "services"), on("patch update", "-", "services/status"), on("list watch", "-", "nodes"), eventRules())
}

func (p *policy) storageControllers() {
	const volumes, claims = "persistentvolumes", "persistentvolumeclaims"
	p.controller("attachdetach-controller",
		on("list watch", "-", volumes+" "+claims), on(read, "-", "nodes"), on("patch update", "-", "nodes/status"), on("list watch", "-", "pods"), eventRules(),
		on("create delete "+read, "storage.k8s.io", "volumeattachments"), on(read, "storage.k8s.io", "csidrivers"), on(read, "storage.k8s.io", "csinodes"))
	p.controller("expand-controller",
		on("patch update "+read, "-", volumes), on("patch update", "-", claims+"/status"), on(read, "-", claims), eventRules())
	p.controller("persistent-volume-binder",
		on("create delete update "+read, "-", volumes), on("update", "-", volumes+"/status"), on("update "+read, "-", claims), on("update", "-", claims+"/status"),
		on("create delete "+read, "-", "pods"), on(read, "storage.k8s.io", "storageclasses"), on("list watch", "-", "nodes"), eventRules(), on("watch", "-", "events"))
	p.controller("pv-protection-controller", on("update "+read, "-", volumes), eventRules())
	p.controller("pvc-protection-controller",
		on("update "+read, "-", claims), on("update", "-", claims+"/status"), on(read, "-", "pods"), eventRules())
	p.controller("selinux-warning-controller",
		eventRules(), on(read, "-", volumes), on(read, "-", claims), on(read, "-", "pods"), on(read, "storage.k8s.io", "csidrivers"))
	p.controller("volumeattributesclass-protection-controller",
		on(read, "-", claims), on(read, "-", volumes), on("update "+read, "storage.k8s.io", "volumeattributesclasses"), eventRules())
}

func (p *policy) clusterControllers() {
	const csrs = "certificatesigningrequests"
	p.controller("certificate-controller",
		on("delete "+read, "certificates.k8s.io", csrs), on("update", "certificates.k8s.io", csrs+"/approval "+csrs+"/status"),
		named("approve", "certificates.k8s.io", "signers", signer("kube-apiserver-client-kubelet")),
		named("sign", "certificates.k8s.io", "signers", builtInSigners()),
		on("create", "authorization.k8s.io", "subjectaccessreviews"), eventRules())
	p.controller("kube-apiserver-serving-clustertrustbundle-publisher",
		named("attest", "certificates.k8s.io", "signers", signer("kube-apiserver-serving")),
		on("create delete list update watch", "certificates.k8s.io", "clustertrustbundles"), eventRules())
	p.controller("podcertificaterequestcleaner", on("delete "+read, "certificates.k8s.io", "podcertificaterequests"))
	p.controller("clusterrole-aggregation-controller", on("escalate patch update "+read, "rbac.authorization.k8s.io", "clusterroles"))
	p.controller("generic-garbage-collector", on("delete patch update "+read, "*", "*"), eventRules())
	p.controller("legacy-service-account-token-cleaner",
		named("get", "-", "configmaps", "kube-apiserver-legacy-service-account-token-tracking"), on("delete patch", "-", "secrets"))
	p.controller("namespace-controller",
		on("delete "+read, "-", "namespaces"), on("update", "-", "namespaces/finalize namespaces/status"), on("delete deletecollection "+read, "*", "*"))
	p.controller("resourcequota-controller", on("list watch", "*", "*"), on("update", "-", "resourcequotas/status"), eventRules())
	p.controller("root-ca-cert-publisher", on("create update", "-", "configmaps"), eventRules())
	p.controller("service-account-controller", on("create", "-", "serviceaccounts"), eventRules())
	p.controller("storage-version-migrator-controller",
		on("list patch", "*", "*"), on("get", "apiextensions.k8s.io", "customresourcedefinitions"), on("patch", "apiextensions.k8s.io", "customresourcedefinitions/status"),
		on("update", "storagemigration.k8s.io", "storageversionmigrations/status"))
	p.controller("validatingadmissionpolicy-status-controller",
		on(read, "admissionregistration.k8s.io", "validatingadmissionpolicies"), on("get patch update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"), eventRules())
}
