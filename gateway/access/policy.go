package access

import (
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"portico/resource"
	"portico/resource/rest"
)

// policy is a set of roles and bindings.
type policy struct{ objects [numKinds][]rest.Object }

func (p *policy) add(kind int, obj rest.Object) { p.objects[kind] = append(p.objects[kind], obj) }

// bootstrapPolicy returns the policy of every cluster (docs/wire.md 7.6), which is that of
// kube-apiserver, and the roles of Portico's processes.
func bootstrapPolicy() *policy {
	p := &policy{}
	for _, r := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()) {
		p.add(clusterRoles, &r)
	}
	for _, b := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()) {
		p.add(clusterRoleBindings, &b)
	}
	for _, list := range bootstrappolicy.NamespaceRoles() {
		for _, r := range list {
			p.add(roles, &r)
		}
	}
	for _, list := range bootstrappolicy.NamespaceRoleBindings() {
		for _, b := range list {
			p.add(roleBindings, &b)
		}
	}
	p.portico()
	return p
}

// nodeRules returns the rules of the ClusterRole system:node.
var nodeRules = sync.OnceValue(bootstrappolicy.NodeRules)

// AllowsNode reports whether the role of kubelets, as it is at the start, allows an action.
func AllowsNode(act *resource.Action) bool {
	rules := nodeRules()
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return matches(&r, act) })
}

// processRolePrefix begins the names of the roles of Portico's processes.
const processRolePrefix = "system:portico:"

// portico adds the roles of Portico's processes as clients of the gateway. The core server deletes the contents of
// namespaces and collects garbage in every group, and its controllers create objects. The CRD server reads what
// admission needs, which includes parameters of policies, of any kind, and charges quotas. Both send access reviews
// for updates that create.
func (p *policy) portico() {
	p.clusterRole(processRolePrefix+"core",
		on(read+" delete deletecollection patch update", "*", "*"),
		urls("get", "*"),
		on("create", "-", "configmaps endpoints events"), on("create", "discovery.k8s.io", "endpointslices"),
		on("create", "certificates.k8s.io", "clustertrustbundles"),
		named("approve", "certificates.k8s.io", "signers", signer("kube-apiserver-client-kubelet")),
		named("attest", "certificates.k8s.io", "signers", signer("kube-apiserver-serving")),
		named("sign", "certificates.k8s.io", "signers", signer("kube-apiserver-client")+" "+signer("kube-apiserver-client-kubelet")+" "+signer("kubelet-serving")+" "+signer("legacy-unknown")))
	p.clusterRole(processRolePrefix+"crd", on(read, "*", "*"), on("update", "-", "resourcequotas/status"))
	p.clusterRole(processRolePrefix+"gateway",
		on(read, "-", "services serviceaccounts namespaces"),
		on(full, "-", "configmaps"),
		on(read, "discovery.k8s.io", "endpointslices"))
	for _, name := range []string{"core", "crd", "gateway"} {
		p.bind(processRolePrefix+name, user(processRolePrefix+name))
	}
	p.bind("system:auth-delegator", user(processRolePrefix+"core"), user(processRolePrefix+"crd"))
}

// signer returns the name of a built-in signer of certificates.
func signer(name string) string { return "kubernetes.io/" + name }

// Functions for policy data. Their lists are separated by spaces.

const (
	read  = "get list watch"
	write = "create delete deletecollection patch update"
	full  = read + " " + write
)

// words returns the words of a list, sorted.
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

func bootstrapMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{bootstrapLabel: bootstrapValue},
		Annotations: map[string]string{autoupdateAnnotation: "true"},
	}
}

func (p *policy) clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: bootstrapMeta(name), Rules: rules}
	p.add(clusterRoles, r)
	return r
}

// bind adds a ClusterRoleBinding of the same name as the role.
func (p *policy) bind(role string, subjects ...rbacv1.Subject) {
	p.add(clusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: bootstrapMeta(role), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}
