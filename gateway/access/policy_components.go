package access

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// components: the roles of Kubernetes components that may be pointed at
// Portico, and those that extension servers are bound to.
func (p *policy) components() {
	reviews := []rbacv1.PolicyRule{
		on("create", "authentication.k8s.io", "tokenreviews"),
		on("create", "authorization.k8s.io", "subjectaccessreviews"),
	}
	p.clusterRole("system:auth-delegator", reviews...)
	// Portico's own servers ask whether an update may create.
	p.bind("system:auth-delegator", user("system:portico:core"), user("system:portico:crd"))
	p.clusterRole("system:kube-aggregator", on(read, "-", "services endpoints"))
	p.clusterRole("system:kubelet-api-admin",
		on(read, "-", "nodes"), on("proxy", "-", "nodes"),
		on("*", "-", "nodes/proxy nodes/metrics nodes/stats nodes/log nodes/configz nodes/healthz nodes/pods"))
	p.clusterRole("system:heapster",
		on(read, "-", "events pods nodes namespaces"), on(read, "apps", "deployments"))
	p.clusterRole("system:node-bootstrapper", on("create get list watch", "certificates.k8s.io", "certificatesigningrequests"))
	p.clusterRole("system:node-problem-detector", on("get", "-", "nodes"), on("patch", "-", "nodes/status"), eventRules())
	p.clusterRole("system:node-proxier",
		on("list watch", "-", "services"), on("get list watch", "-", "nodes"),
		on("list watch", "discovery.k8s.io", "endpointslices"), on("list watch", "networking.k8s.io", "servicecidrs"), eventRules())
	p.bind("system:node-proxier", user("system:kube-proxy"))
	p.clusterRole("system:kube-dns", on("list watch", "-", "endpoints services"))
	p.bind("system:kube-dns", account("kube-system", "kube-dns"))
	p.clusterRole("system:persistent-volume-provisioner",
		on("create delete "+read, "-", "persistentvolumes"), on("update "+read, "-", "persistentvolumeclaims"),
		on(read, "storage.k8s.io", "storageclasses"), on("watch", "-", "events"), eventRules())
	p.node(reviews)
	p.managers(reviews)
	p.certificates()
	p.namespacedRoles()
}

// node is bound to nobody: kubelets are authorized by what they run.
func (p *policy) node(reviews []rbacv1.PolicyRule) {
	p.clusterRole("system:node", append([]rbacv1.PolicyRule{
		on(read, "-", "services"), on("create "+read, "-", "nodes"), on("patch update", "-", "nodes nodes/status"),
		eventRules(), on(read, "-", "pods"), on("create delete", "-", "pods"), on("patch update", "-", "pods/status"),
		on("create", "-", "pods/eviction"), on(read, "-", "configmaps secrets"),
		on("get", "-", "persistentvolumeclaims persistentvolumes"), on("get patch update", "-", "persistentvolumeclaims/status"),
		on("create "+read, "certificates.k8s.io", "certificatesigningrequests"),
		on(read, "certificates.k8s.io", "clustertrustbundles"), on("get", "storage.k8s.io", "volumeattachments"),
		on("create", "-", "serviceaccounts/token"), on(read, "storage.k8s.io", "csidrivers"),
		on("create delete get patch update", "storage.k8s.io", "csinodes"),
		on("create delete get patch update", "coordination.k8s.io", "leases"),
		on(read, "node.k8s.io", "runtimeclasses"), on("get", "resource.k8s.io", "resourceclaims"),
		on(full, "resource.k8s.io", "resourceslices"),
	}, reviews...)...)
	// Kept without subjects, as upstream keeps it: it marks the role as known.
	p.bind("system:node")
}

func (p *policy) managers(reviews []rbacv1.PolicyRule) {
	p.clusterRole("system:kube-controller-manager", append([]rbacv1.PolicyRule{
		eventRules(), on("create", "coordination.k8s.io", "leases"),
		named("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
		on("create", "-", "secrets serviceaccounts"), on("delete", "-", "secrets"),
		on("get", "-", "namespaces secrets serviceaccounts configmaps"), on("update", "-", "secrets serviceaccounts"),
		on("list watch", "*", "*"), on("create", "-", "serviceaccounts/token"),
	}, reviews...)...)
	p.bind("system:kube-controller-manager", user("system:kube-controller-manager"))
	p.clusterRole("system:kube-scheduler", append([]rbacv1.PolicyRule{
		eventRules(), on("create", "coordination.k8s.io", "leases"),
		named("get update", "coordination.k8s.io", "leases", "kube-scheduler"),
		on(read, "-", "nodes"), on("delete "+read, "-", "pods"), on("create", "-", "bindings pods/binding"),
		on("patch update", "-", "pods/status"), on(read, "-", "replicationcontrollers services namespaces persistentvolumeclaims persistentvolumes"),
		on(read, "apps", "replicasets statefulsets"), on(read, "policy", "poddisruptionbudgets"),
		on(read, "storage.k8s.io", "csinodes csidrivers csistoragecapacities storageclasses volumeattachments"),
		on(read, "resource.k8s.io", "deviceclasses resourceclaims resourceslices"),
	}, reviews...)...)
	p.bind("system:kube-scheduler", user("system:kube-scheduler"))
	p.clusterRole("system:volume-scheduler",
		on(read+" patch update", "-", "persistentvolumes persistentvolumeclaims"), on(read, "storage.k8s.io", "storageclasses"))
	p.bind("system:volume-scheduler", user("system:kube-scheduler"))
}

func (p *policy) certificates() {
	const prefix = "system:certificates.k8s.io:"
	for _, name := range []string{"nodeclient", "selfnodeclient"} {
		p.clusterRole(prefix+"certificatesigningrequests:"+name, on("create", "certificates.k8s.io", "certificatesigningrequests/"+name))
	}
	for name, signer := range map[string]string{
		"legacy-unknown-approver":                "kubernetes.io/legacy-unknown",
		"kubelet-serving-approver":               "kubernetes.io/kubelet-serving",
		"kube-apiserver-client-approver":         "kubernetes.io/kube-apiserver-client",
		"kube-apiserver-client-kubelet-approver": "kubernetes.io/kube-apiserver-client-kubelet",
	} {
		p.clusterRole(prefix+name, named("approve", "certificates.k8s.io", "signers", signer))
	}
}

func (p *policy) namespacedRoles() {
	const system, public = "kube-system", "kube-public"
	p.role(system, "extension-apiserver-authentication-reader", "system::extension-apiserver-authentication-reader",
		[]rbacv1.Subject{user("system:kube-controller-manager"), user("system:kube-scheduler")},
		named(read, "-", "configmaps", "extension-apiserver-authentication"))
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		p.role(system, "system::leader-locking-"+name, "system::leader-locking-"+name,
			[]rbacv1.Subject{user("system:" + name), account(system, name)},
			on("watch", "-", "configmaps"), named("get update", "-", "configmaps", name))
	}
	controller := func(namespace, name string, rules ...rbacv1.PolicyRule) {
		full := "system:controller:" + name
		p.role(namespace, full, full, []rbacv1.Subject{account(system, name)}, rules...)
	}
	controller(system, "bootstrap-signer", on(read, "-", "secrets"))
	controller(system, "cloud-provider", on("create get list watch", "-", "configmaps"))
	controller(system, "token-cleaner", on("delete "+read, "-", "secrets"), eventRules())
	controller(public, "bootstrap-signer", on(read, "-", "configmaps"), named("update", "-", "configmaps", "cluster-info"), eventRules())
}
