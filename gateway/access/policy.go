package access

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/authz"
	"portico/resource/rest"
)

// policy is a set of roles and bindings.
type policy struct{ objects [numKinds][]rest.Object }

func (p *policy) add(kind int, obj rest.Object) { p.objects[kind] = append(p.objects[kind], obj) }

// Functions for policy data. Their lists are separated by spaces.

const (
	read  = "get list watch"
	write = "create delete deletecollection patch update"
	full  = read + " " + write
)

// words returns the words of a list in upstream's order.
func words(list string) []string { return slices.Sorted(strings.FieldsSeq(list)) }

// on returns a rule for verbs on resources of groups; "-" is the core group.
func on(verbs, groups, resources string) rbacv1.PolicyRule {
	list := words(groups)
	for i := range list {
		if list[i] == "-" {
			list[i] = ""
		}
	}
	return rbacv1.PolicyRule{Verbs: words(verbs), APIGroups: list, Resources: words(resources)}
}

// named is on for objects with these names.
func named(verbs, groups, resources, names string) rbacv1.PolicyRule {
	r := on(verbs, groups, resources)
	r.ResourceNames = words(names)
	return r
}

// urls returns a rule for verbs on non-resource paths.
func urls(verbs, paths string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: words(verbs), NonResourceURLs: words(paths)}
}

// eventRules permits a controller to write events.
func eventRules() rbacv1.PolicyRule { return on("create patch update", "- events.k8s.io", "events") }

func bootstrapMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{bootstrapLabel: bootstrapValue},
		Annotations: map[string]string{autoupdateAnnotation: "true"},
	}
}

func (p *policy) clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: bootstrapMeta("", name), Rules: rules}
	p.add(clusterRoles, r)
	return r
}

// aggregated adds a ClusterRole that aggregates those with the label
// rbac.authorization.k8s.io/aggregate-to-<name>.
func (p *policy) aggregated(name string) *rbacv1.ClusterRole {
	r := p.clusterRole(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{
		MatchLabels: map[string]string{aggregateTo + name: "true"},
	}}}
	return r
}

const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// bind adds a ClusterRoleBinding of the same name as the role.
func (p *policy) bind(role string, subjects ...rbacv1.Subject) {
	p.add(clusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: bootstrapMeta("", role), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})
}

// role adds a Role and, with subjects, a RoleBinding called binding.
func (p *policy) role(namespace, name, binding string, subjects []rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	p.add(roles, &rbacv1.Role{ObjectMeta: bootstrapMeta(namespace, name), Rules: rules})
	if len(subjects) == 0 {
		return
	}
	p.add(roleBindings, &rbacv1.RoleBinding{
		ObjectMeta: bootstrapMeta(namespace, binding), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	})
}

// controller adds the role of a built-in controller, bound to its service account.
func (p *policy) controller(name string, rules ...rbacv1.PolicyRule) {
	p.clusterRole("system:controller:"+name, rules...)
	p.bind("system:controller:"+name, account("kube-system", name))
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// bootstrapPolicy returns the policy of every cluster (docs/wire.md 7.6; the rules are those of
// kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy), and the roles of Portico's
// processes.
func bootstrapPolicy() *policy {
	p := &policy{}
	p.allUsers()
	p.namespaceUsers()
	p.components()
	p.controllers()
	p.portico()
	return p
}

// allUsers adds the roles of all users.
func (p *policy) allUsers() {
	all, authenticated, unauthenticated := "/livez /readyz /healthz /version /version/", group("system:authenticated"), group("system:unauthenticated")
	p.clusterRole("cluster-admin", authz.Everything()...)
	p.bind("cluster-admin", group("system:masters"))
	p.clusterRole("system:discovery", urls("get", all+" /openapi /openapi/* /api /api/* /apis /apis/*"))
	p.bind("system:discovery", authenticated)
	p.clusterRole("system:public-info-viewer", urls("get", all))
	p.bind("system:public-info-viewer", authenticated, unauthenticated)
	p.clusterRole("system:basic-user",
		on("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
		on("create", "authentication.k8s.io", "selfsubjectreviews"))
	p.bind("system:basic-user", authenticated)
	p.clusterRole("system:monitoring", urls("get", "/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/* /statusz /flagz"))
	p.bind("system:monitoring", group("system:monitoring"))
	p.clusterRole("system:service-account-issuer-discovery", urls("get", "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/"))
	p.bind("system:service-account-issuer-discovery", group("system:serviceaccounts"))
	p.clusterRole("system:cluster-trust-bundle-discovery", on(read, "certificates.k8s.io", "clustertrustbundles"))
	p.bind("system:cluster-trust-bundle-discovery", group("system:serviceaccounts"))
}

// namespaceUsers adds admin, edit and view. Roles for custom resources join them by labels.
func (p *policy) namespaceUsers() {
	p.aggregated("admin")
	p.aggregated("edit").Labels[aggregateTo+"admin"] = "true"
	p.aggregated("view").Labels[aggregateTo+"edit"] = "true"
	p.clusterRole("system:aggregate-to-admin",
		on("create", "authorization.k8s.io", "localsubjectaccessreviews"),
		on(full, "rbac.authorization.k8s.io", "roles rolebindings"),
	).Labels[aggregateTo+"admin"] = "true"
	p.clusterRole("system:aggregate-to-edit",
		on(read, "-", "pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy"),
		on("impersonate", "-", "serviceaccounts"),
		on(write, "-", "pods pods/attach pods/proxy pods/exec pods/portforward"),
		on("create", "-", "pods/eviction"),
		on(write, "-", "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/proxy persistentvolumeclaims configmaps secrets events"),
		on("create", "-", "serviceaccounts/token"),
		on(write, "apps", "deployments deployments/scale deployments/rollback replicasets replicasets/scale statefulsets statefulsets/scale daemonsets"),
		on(write, "autoscaling", "horizontalpodautoscalers"),
		on(write, "batch", "jobs cronjobs"),
		on(write, "extensions", "daemonsets deployments deployments/scale deployments/rollback ingresses networkpolicies replicasets replicasets/scale replicationcontrollers/scale"),
		on(write, "policy", "poddisruptionbudgets"),
		on(write, "networking.k8s.io", "networkpolicies ingresses"),
		on(full, "coordination.k8s.io", "leases"),
		on(write, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
	).Labels[aggregateTo+"edit"] = "true"
	p.clusterRole("system:aggregate-to-view",
		on(read, "-", "pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status endpoints persistentvolumeclaims persistentvolumeclaims/status configmaps"),
		on(read, "-", "limitranges resourcequotas resourcequotas/status bindings events pods/log pods/status namespaces/status replicationcontrollers/status"),
		on(read, "-", "namespaces"),
		on(read, "discovery.k8s.io", "endpointslices"),
		on(read, "apps", "controllerrevisions deployments deployments/scale deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status daemonsets daemonsets/status"),
		on(read, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
		on(read, "batch", "jobs jobs/status cronjobs cronjobs/status"),
		on(read, "extensions", "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale"),
		on(read, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
		on(read, "networking.k8s.io", "networkpolicies ingresses ingresses/status"),
		on(read, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
	).Labels[aggregateTo+"view"] = "true"
}

// processRolePrefix begins the names of the roles of Portico's processes.
const processRolePrefix = "system:portico:"

// portico adds the roles of Portico's processes as clients of the gateway. The core server deletes the contents of
// namespaces and collects garbage in every group, and its controllers create objects. The CRD server reads what
// admission needs, which includes parameters of policies, of any kind, and charges quotas.
func (p *policy) portico() {
	p.clusterRole(processRolePrefix+"core",
		on(read+" delete deletecollection patch update", "*", "*"),
		urls("get", "*"),
		on("create", "-", "configmaps endpoints events"), on("create", "discovery.k8s.io", "endpointslices"),
		on("create", "certificates.k8s.io", "clustertrustbundles"),
		named("approve", "certificates.k8s.io", "signers", signer("kube-apiserver-client-kubelet")),
		named("attest", "certificates.k8s.io", "signers", signer("kube-apiserver-serving")),
		named("sign", "certificates.k8s.io", "signers", builtInSigners()))
	p.clusterRole(processRolePrefix+"crd", on(read, "*", "*"), on("update", "-", "resourcequotas/status"))
	p.clusterRole(processRolePrefix+"gateway",
		on(read, "-", "services serviceaccounts namespaces"),
		on(full, "-", "configmaps"),
		on(read, "discovery.k8s.io", "endpointslices"))
	for _, name := range []string{"core", "crd", "gateway"} {
		p.bind(processRolePrefix+name, user(processRolePrefix+name))
	}
}
