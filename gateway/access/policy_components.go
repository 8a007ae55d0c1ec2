package access

import (
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"

	"portico/resource"
)

// components adds the roles of Kubernetes components that may use Portico as their API
// server, and those of extension servers.
func (p *policy) components() {
	reviews := []rbacv1.PolicyRule{
		on("create", "authentication.k8s.io", "tokenreviews"),
		on("create", "authorization.k8s.io", "subjectaccessreviews"),
	}
	p.clusterRole("system:auth-delegator", reviews...)
	// Portico's servers send access reviews for updates that create.
	p.bind("system:auth-delegator", user("system:portico:core"), user("system:portico:crd"))
	p.clusterRole("system:kube-aggregator", on(read, "-", "services endpoints"))
	p.clusterRole("system:kubelet-api-admin",
		on(read, "-", "nodes"), on("proxy", "-", "nodes"),
		on("*", "-", "nodes/log nodes/metrics nodes/proxy nodes/stats"), on("*", "-", "nodes/configz nodes/healthz nodes/pods"))
	p.clusterRole("system:heapster",
		on(read, "-", "events namespaces nodes pods"), on(read, "extensions", "deployments"))
	p.clusterRole("system:node-bootstrapper", on("create "+read, "certificates.k8s.io", "certificatesigningrequests"))
	p.clusterRole("system:node-problem-detector", on("get", "-", "nodes"), on("patch", "-", "nodes/status"), eventRules())
	p.clusterRole("system:node-proxier",
		on("list watch", "-", "endpoints services"), on(read, "-", "nodes"), eventRules(),
		on("list watch", "networking.k8s.io", "servicecidrs"), on("list watch", "discovery.k8s.io", "endpointslices"))
	p.bind("system:node-proxier", user("system:kube-proxy"))
	p.clusterRole("system:kube-dns", on("list watch", "-", "endpoints services"))
	p.bind("system:kube-dns", account("kube-system", "kube-dns"))
	p.clusterRole("system:persistent-volume-provisioner",
		on("create delete "+read, "-", "persistentvolumes"), on("update "+read, "-", "persistentvolumeclaims"),
		on(read, "storage.k8s.io", "storageclasses"), on("watch", "-", "events"), eventRules())
	p.node()
	p.managers(reviews)
	p.certificates()
	p.namespacedRoles()
}

// node adds the role of kubelets, which has no subjects: kubelets have node authorization.
func (p *policy) node() {
	p.clusterRole("system:node",
		on("create", "authentication.k8s.io", "tokenreviews"), on("create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"),
		on(read, "-", "services"), on("create "+read, "-", "nodes"), on("patch update", "-", "nodes/status"), on("patch update", "-", "nodes"),
		on("create patch update", "- events.k8s.io", "events"), on(read, "-", "pods"), on("create delete", "-", "pods"), on("patch update", "-", "pods/status"),
		on("create", "-", "pods/eviction"), on(read, "-", "configmaps secrets"),
		on("get", "-", "persistentvolumeclaims persistentvolumes"), on("get", "-", "endpoints"),
		on("create "+read, "certificates.k8s.io", "certificatesigningrequests"),
		on("create delete get patch update", "coordination.k8s.io", "leases"), on("get", "storage.k8s.io", "volumeattachments"),
		on("create", "-", "serviceaccounts/token"), on("get patch update", "-", "persistentvolumeclaims/status"),
		on(read, "storage.k8s.io", "csidrivers"), on("create delete get patch update", "storage.k8s.io", "csinodes"),
		on(read, "node.k8s.io", "runtimeclasses"), on("get", "resource.k8s.io", "resourceclaims"), on("deletecollection", "resource.k8s.io", "resourceslices"),
		on(read, "certificates.k8s.io", "clustertrustbundles"), on("get", "-", "serviceaccounts"), on("create "+read, "certificates.k8s.io", "podcertificaterequests"))
	// As upstream, the binding exists without subjects.
	p.bind("system:node")
}

// nodeRules are those of the role of kubelets.
var nodeRules = sync.OnceValue(func() []rbacv1.PolicyRule {
	var p policy
	p.node()
	return p.objects[clusterRoles][0].(*rbacv1.ClusterRole).Rules
})

// AllowsNode reports whether the role of kubelets, as it is at the start, allows an action.
func AllowsNode(act *resource.Action) bool {
	rules := nodeRules()
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return matches(&r, act) })
}

func (p *policy) managers(reviews []rbacv1.PolicyRule) {
	p.clusterRole("system:kube-controller-manager", append([]rbacv1.PolicyRule{
		eventRules(), on("create", "coordination.k8s.io", "leases"),
		named("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
		on("create", "-", "secrets serviceaccounts"), on("delete", "-", "secrets"),
		on("get", "-", "configmaps namespaces secrets serviceaccounts"), on("update", "-", "secrets serviceaccounts"),
		on("list watch", "*", "*"), on("create", "-", "serviceaccounts/token"),
	}, reviews...)...)
	p.bind("system:kube-controller-manager", user("system:kube-controller-manager"))
	const change = "patch update " + read
	p.clusterRole("system:kube-scheduler", append([]rbacv1.PolicyRule{
		eventRules(), on("create", "coordination.k8s.io", "leases"),
		named("update "+read, "coordination.k8s.io", "leases", "kube-scheduler"), on(full, "coordination.k8s.io", "leasecandidates"),
		on(read, "-", "nodes"), on("delete "+read, "-", "pods"), on("create", "-", "bindings pods/binding"), on("patch update", "-", "pods/status"),
		on(read, "-", "replicationcontrollers services"), on(read, "apps extensions", "replicasets"), on(read, "apps", "statefulsets"),
		on(read, "policy", "poddisruptionbudgets"), on(read, "-", "persistentvolumeclaims persistentvolumes"), on(read, "-", "namespaces"),
		on(read, "storage.k8s.io", "csinodes"), on(read, "storage.k8s.io", "volumeattachments"),
		on(read, "storage.k8s.io", "csidrivers"), on(read, "storage.k8s.io", "csistoragecapacities"),
		on(read, "resource.k8s.io", "deviceclasses"), on(change, "resource.k8s.io", "resourceclaims"), on(change, "resource.k8s.io", "resourceclaims/status"),
		on("patch update", "resource.k8s.io", "resourceclaims/binding"), on(change, "-", "pods/finalizers"), on(read, "resource.k8s.io", "resourceslices"),
		on(read, "resource.k8s.io", "devicetaintrules"),
	}, reviews...)...)
	p.bind("system:kube-scheduler", user("system:kube-scheduler"))
	p.clusterRole("system:volume-scheduler",
		on(change, "-", "persistentvolumes"), on(read, "storage.k8s.io", "storageclasses"), on(change, "-", "persistentvolumeclaims"))
	p.bind("system:volume-scheduler", user("system:kube-scheduler"))
}

// signer returns the name of a built-in signer of certificates.
func signer(name string) string { return "kubernetes.io/" + name }

// builtInSigners returns the names of the signers that Kubernetes itself has.
func builtInSigners() string {
	return signer("kube-apiserver-client") + " " + signer("kube-apiserver-client-kubelet") + " " + signer("kubelet-serving") + " " + signer("legacy-unknown")
}

func (p *policy) certificates() {
	const prefix = "system:certificates.k8s.io:"
	for _, name := range []string{"nodeclient", "selfnodeclient"} {
		p.clusterRole(prefix+"certificatesigningrequests:"+name, on("create", "certificates.k8s.io", "certificatesigningrequests/"+name))
	}
	for _, name := range []string{"legacy-unknown", "kubelet-serving", "kube-apiserver-client", "kube-apiserver-client-kubelet"} {
		p.clusterRole(prefix+name+"-approver", named("approve", "certificates.k8s.io", "signers", signer(name)))
	}
}

func (p *policy) namespacedRoles() {
	const system, public = "kube-system", "kube-public"
	p.role(system, "extension-apiserver-authentication-reader", "system::extension-apiserver-authentication-reader",
		[]rbacv1.Subject{user("system:kube-controller-manager"), user("system:kube-scheduler")},
		named(read, "-", "configmaps", "extension-apiserver-authentication"))
	leaders := func(name string, subjects ...rbacv1.Subject) {
		const keep = "create update " + read
		p.role(system, "system::leader-locking-"+name, "system::leader-locking-"+name,
			append([]rbacv1.Subject{user("system:" + name), account(system, name)}, subjects...),
			on(keep, "coordination.k8s.io", "leases"), on(keep, "coordination.k8s.io", "leasecandidates"))
	}
	leaders("kube-controller-manager", account(system, "leader-election-controller"))
	leaders("kube-scheduler")
	controller := func(namespace, name string, rules ...rbacv1.PolicyRule) {
		full := "system:controller:" + name
		p.role(namespace, full, full, []rbacv1.Subject{account(system, name)}, rules...)
	}
	controller(system, "bootstrap-signer", on(read, "-", "secrets"))
	controller(system, "cloud-provider", on("create get list watch", "-", "configmaps"))
	controller(system, "token-cleaner", on("delete "+read, "-", "secrets"), eventRules())
	controller(public, "bootstrap-signer", on(read, "-", "configmaps"), named("update", "-", "configmaps", "cluster-info"), eventRules())
}
