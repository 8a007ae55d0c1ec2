package access

// controllers: one role for each controller of kube-controller-manager, bound
// to its service account in kube-system.
func (p *policy) controllers() {
	const pods = "create delete list watch"
	e := eventRules()
	p.controller("attachdetach-controller",
		on("list watch", "-", "persistentvolumes persistentvolumeclaims"), on(read, "-", "nodes"), on("patch update", "-", "nodes/status"),
		on("list watch", "-", "pods"), on("create delete "+read, "storage.k8s.io", "volumeattachments"), on(read, "storage.k8s.io", "csidrivers csinodes"), e)
	p.controller("certificate-controller",
		on("delete "+read, "certificates.k8s.io", "certificatesigningrequests"), on("update", "certificates.k8s.io", "certificatesigningrequests/status certificatesigningrequests/approval"),
		on("approve sign", "certificates.k8s.io", "signers"), on("create", "authorization.k8s.io", "subjectaccessreviews"), e)
	p.controller("clusterrole-aggregation-controller", on("escalate get list patch update watch", "rbac.authorization.k8s.io", "clusterroles"))
	p.controller("cronjob-controller", on("get list update watch", "batch", "cronjobs"), on("create delete get list patch update watch", "batch", "jobs"),
		on("update", "batch", "cronjobs/status cronjobs/finalizers"), on("delete list", "-", "pods"), e)
	p.controller("daemon-set-controller", on(read, "apps", "daemonsets"), on("update", "apps", "daemonsets/status daemonsets/finalizers"),
		on("list watch", "-", "nodes"), on(pods+" patch", "-", "pods"), on("create", "-", "pods/binding"), on("create delete get list patch update watch", "apps", "controllerrevisions"), e)
	p.controller("deployment-controller", on("get list update watch", "apps", "deployments"), on("update", "apps", "deployments/status deployments/finalizers"),
		on("create delete get list patch update watch", "apps", "replicasets"), on("get list update watch", "-", "pods"), e)
	p.controller("disruption-controller", on(read, "apps", "deployments replicasets statefulsets"), on(read, "-", "replicationcontrollers"),
		on(read, "policy", "poddisruptionbudgets"), on("update", "policy", "poddisruptionbudgets/status"), on("get list patch watch", "-", "pods pods/status"), on("get", "*", "*/scale"), e)
	p.controller("endpoint-controller", on(read, "-", "services pods"), on("create delete get list update", "-", "endpoints"), on("create", "-", "endpoints/restricted"), e)
	p.controller("endpointslice-controller", on(read, "-", "services pods nodes"), on("update", "-", "services/finalizers"),
		on("create delete get list update", "discovery.k8s.io", "endpointslices"), on("create", "discovery.k8s.io", "endpointslices/restricted"), e)
	p.controller("endpointslicemirroring-controller", on(read, "-", "services endpoints"), on("update", "-", "services/finalizers endpoints/finalizers"),
		on("create delete get list update", "discovery.k8s.io", "endpointslices"), on("create", "discovery.k8s.io", "endpointslices/restricted"), e)
	p.controller("ephemeral-volume-controller", on(read, "-", "pods"), on("update", "-", "pods/finalizers"), on("create get list watch", "-", "persistentvolumeclaims"), e)
	p.controller("expand-controller", on("get list patch update watch", "-", "persistentvolumes"), on("get list watch", "-", "persistentvolumeclaims"), on("patch update", "-", "persistentvolumeclaims/status"), on(read, "storage.k8s.io", "storageclasses"), e)
	p.controller("generic-garbage-collector", on("delete get list patch update watch", "*", "*"), e)
	p.controller("horizontal-pod-autoscaler", on("get list watch", "autoscaling", "horizontalpodautoscalers"), on("update", "autoscaling", "horizontalpodautoscalers/status"),
		on("get update", "*", "*/scale"), on("list", "-", "pods"), on("list", "metrics.k8s.io", "pods"), on("get list", "custom.metrics.k8s.io external.metrics.k8s.io", "*"), e)
	p.controller("job-controller", on("get list patch update watch", "batch", "jobs"), on("update", "batch", "jobs/status jobs/finalizers"), on(pods+" patch", "-", "pods"), e)
	p.controller("legacy-service-account-token-cleaner", named("get", "-", "configmaps", "kube-apiserver-legacy-service-account-token-tracking"), on("delete patch", "-", "secrets"))
	p.controller("namespace-controller", on("delete get list watch", "-", "namespaces"), on("update", "-", "namespaces/finalize namespaces/status"), on("delete deletecollection get list", "*", "*"))
	p.controller("node-controller", on("delete get list patch update", "-", "nodes"), on("patch update", "-", "nodes/status"), on("patch update", "-", "pods/status"), on("delete get list", "-", "pods"), e)
	p.controller("persistent-volume-binder", on(full, "-", "persistentvolumes"), on("update", "-", "persistentvolumes/status"), on("get list update watch", "-", "persistentvolumeclaims"),
		on("update", "-", "persistentvolumeclaims/status"), on("create delete get list watch", "-", "pods"), on(read, "storage.k8s.io", "storageclasses"), on("get list", "-", "nodes"), e)
	p.controller("pod-garbage-collector", on("delete list watch", "-", "pods"), on("get list", "-", "nodes"), on("patch", "-", "pods/status"))
	p.controller("pv-protection-controller", on("get list update watch", "-", "persistentvolumes"), e)
	p.controller("pvc-protection-controller", on("get list update watch", "-", "persistentvolumeclaims"), on(read, "-", "pods"), e)
	p.controller("replicaset-controller", on("get list update watch", "apps", "replicasets"), on("update", "apps", "replicasets/status replicasets/finalizers"), on(pods+" patch", "-", "pods"), e)
	p.controller("replication-controller", on("get list update watch", "-", "replicationcontrollers"), on("update", "-", "replicationcontrollers/status replicationcontrollers/finalizers"), on(pods+" patch", "-", "pods"), e)
	p.controller("resource-claim-controller", on(read, "-", "pods"), on("update", "-", "pods/finalizers"), on("create delete get list watch", "resource.k8s.io", "resourceclaims"), on("patch update", "resource.k8s.io", "resourceclaims/status"), on("patch update", "-", "pods/status"), e)
	p.controller("resourcequota-controller", on("list watch", "*", "*"), on("update", "-", "resourcequotas/status"), e)
	p.controller("root-ca-cert-publisher", on("create update", "-", "configmaps"), e)
	p.controller("route-controller", on("list watch", "-", "nodes"), on("patch", "-", "nodes/status"), e)
	p.controller("selinux-warning-controller", on(read, "-", "persistentvolumes persistentvolumeclaims pods"), on(read, "storage.k8s.io", "csidrivers"), e)
	p.controller("service-account-controller", on("create", "-", "serviceaccounts"), e)
	p.controller("service-cidrs-controller", on("get list patch update watch", "networking.k8s.io", "servicecidrs"), on("patch update", "networking.k8s.io", "servicecidrs/finalizers servicecidrs/status"), on(read, "networking.k8s.io", "ipaddresses"), e)
	p.controller("service-controller", on(read, "-", "services"), on("patch update", "-", "services/status"), on("list watch", "-", "nodes"), e)
	p.controller("statefulset-controller", on("list watch", "-", "pods"), on("get list watch", "apps", "statefulsets"), on("update", "apps", "statefulsets/status statefulsets/finalizers"),
		on("create delete get patch update", "-", "pods"), on("create delete get list patch update watch", "apps", "controllerrevisions"), on("create get list watch", "-", "persistentvolumeclaims"), e)
	p.controller("storage-version-migrator-controller", on("list patch update", "*", "*"), on("get list watch", "storagemigration.k8s.io", "storageversionmigrations"), on("update", "storagemigration.k8s.io", "storageversionmigrations/status"))
	p.controller("taint-eviction-controller", on(read, "-", "nodes pods"), on("delete", "-", "pods"), on("patch", "-", "pods/status"), e)
	p.controller("ttl-after-finished-controller", on("delete get list watch", "batch", "jobs"), e)
	p.controller("ttl-controller", on("get list patch update watch", "-", "nodes"), e)
	p.controller("validatingadmissionpolicy-status-controller", on(read, "admissionregistration.k8s.io", "validatingadmissionpolicies"), on("get patch update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"), e)
	p.controller("volumeattributesclass-protection-controller", on("get list update watch", "storage.k8s.io", "volumeattributesclasses"), on(read, "-", "persistentvolumes persistentvolumeclaims"), e)
}
