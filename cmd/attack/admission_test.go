package attack

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Rights cannot be granted in namespaces that do not exist or are being deleted: they would
// apply to the next namespace of that name.
func TestRightsInMissingNamespaces(t *testing.T) {
	t.Parallel()
	i := target
	subject := strings.ReplaceAll(toSelf, "SELF", mark)
	i.namespace(t, "ending")
	i.must(t, "POST", "/api/v1/namespaces/ending/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","finalizers":["example.com/kept"]}}`)
	i.must(t, "DELETE", "/api/v1/namespaces/ending", "")
	t.Cleanup(func() {
		i.must(t, "PATCH", "/api/v1/namespaces/ending/configmaps/kept", `{"metadata":{"finalizers":null}}`, merge)
	})
	for _, tc := range []struct{ name, method, path, body, contentType string }{
		{"a binding", "POST", "/rolebindings", rbacObject("RoleBinding", "r", toAdmin+","+subject), ""},
		{"a binding of a generated name", "POST", "/rolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"generateName":"g-"},` + toAdmin + "," + subject + `}`, ""},
		{"a binding by apply", "PATCH", "/rolebindings/p?fieldManager=m", rbacObject("RoleBinding", "p", toAdmin+","+subject), apply},
		{"a role", "POST", "/roles", rbacObject("Role", "r", everything), ""},
		{"a role by apply", "PATCH", "/roles/p?fieldManager=m", rbacObject("Role", "p", everything), apply},
	} {
		i.must(t, tc.method, rbac+"/namespaces/a"+query(tc.path, "dryRun=All"), tc.body, tc.contentType) // control
		for namespace, want := range map[string]int{"nope": http.StatusNotFound, "ending": http.StatusForbidden} {
			code, body, err := i.ask(i.admin, tc.method, rbac+"/namespaces/"+namespace+tc.path, tc.body, tc.contentType)
			if err != nil || code != want {
				t.Errorf("%s in %s: %d %.300s %v, want %d", tc.name, namespace, code, body, err, want)
			}
		}
	}
	i.namespace(t, "nope")
	if i.may(t, mark, "nope", policyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}}) == nil {
		t.Error("a right was planted for the next namespace of the name")
	}
}

// An admission policy on every kind applies to each of them, the gateway's own kinds
// included.
func TestPolicyOnEveryKind(t *testing.T) {
	t.Parallel()
	i := target
	const admission = "/apis/admissionregistration.k8s.io/v1"
	i.must(t, "POST", admission+"/validatingadmissionpolicies", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"attack"},
		"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE","UPDATE"],"resources":["*"]}]},
		"matchConditions":[{"name":"named","expression":"object != null && has(object.metadata) && has(object.metadata.name) && object.metadata.name.contains('vapdeny')"}],
		"validations":[{"expression":"false","message":"refused by the policy of the test"}]}}`)
	i.must(t, "POST", admission+"/validatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"attack"},
		"spec":{"policyName":"attack","validationActions":["Deny"]}}`)
	t.Cleanup(func() {
		i.must(t, "DELETE", admission+"/validatingadmissionpolicybindings/attack", "")
		i.must(t, "DELETE", admission+"/validatingadmissionpolicies/attack", "")
	})
	for _, tc := range []struct{ path, name, kind, version, more string }{
		{"/api/v1/namespaces/a/configmaps", "NAME", "ConfigMap", "v1", `"data":{}`},
		{"/api/v1/namespaces", "NAME", "Namespace", "v1", `"spec":{}`},
		{"/api/v1/namespaces/a/serviceaccounts", "NAME", "ServiceAccount", "v1", `"secrets":[]`},
		{rbac + "/clusterroles", "NAME", "ClusterRole", "rbac.authorization.k8s.io/v1", `"rules":[]`},
		{rbac + "/clusterrolebindings", "NAME", "ClusterRoleBinding", "rbac.authorization.k8s.io/v1", toAdmin},
		{rbac + "/namespaces/a/roles", "NAME", "Role", "rbac.authorization.k8s.io/v1", `"rules":[]`},
		{rbac + "/namespaces/a/rolebindings", "NAME", "RoleBinding", "rbac.authorization.k8s.io/v1", toAdmin},
		{"/apis/apiregistration.k8s.io/v1/apiservices", "v1.NAME.example.com", "APIService", "apiregistration.k8s.io/v1", `"spec":{"group":"NAME.example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"service":{"namespace":"a","name":"s"},"insecureSkipTLSVerify":true}`},
		{"/apis/gateway.portico.dev/v1alpha1/backends", "NAME", "Backend", "gateway.portico.dev/v1alpha1", `"spec":{"endpoints":[{"url":"https://127.0.0.1:1"}]}`},
		{"/apis/coordination.k8s.io/v1/namespaces/a/leases", "NAME", "Lease", "coordination.k8s.io/v1", `"spec":{}`},
	} {
		object := func(name string) string {
			return strings.ReplaceAll(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%s}`, tc.version, tc.kind, tc.name, tc.more), "NAME", name)
		}
		i.must(t, "POST", tc.path+"?dryRun=All", object("vapallow")) // control
		eventually(t, "the policy sees "+tc.kind, func() error {
			code, body, err := i.ask(i.admin, "POST", tc.path+"?dryRun=All", object("vapdeny"))
			if err == nil && !strings.Contains(body, "refused by the policy of the test") {
				err = fmt.Errorf("%d %s", code, body)
			}
			return err
		})
	}
}
