package attack

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A namespace's administrator cannot reach cluster-scoped resources by a path below the
// namespace.
func TestClusterKindsBelowANamespace(t *testing.T) {
	t.Parallel()
	i := target
	i.namespace(t, "owned")
	i.grant(t, "owner", "owned", policyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	owner := i.client(i.user(t, "owner"))
	if code, body, err := i.ask(owner, "POST", "/api/v1/namespaces/owned/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`); err != nil || code != http.StatusCreated {
		t.Fatalf("control: a ConfigMap in the namespace: %d %s %v", code, body, err)
	}
	for _, tc := range []struct{ prefix, plural, kind, spec string }{
		{"/api/v1", "namespaces", "Namespace", ""},
		{"/apis/rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", `,"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`},
		{"/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"owner"}]`},
		{"/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", ""},
		{"/apis/apiregistration.k8s.io/v1", "apiservices", "APIService", `,"spec":{"group":"mallory.example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1}`},
		{"/apis/gateway.portico.dev/v1alpha1", "backends", "Backend", `,"spec":{"endpoints":[{"url":"http://127.0.0.1:1"}],"rest":{"group":"mallory.example.com","version":"v1"}}`},
		{"/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", ""},
		{"/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", ""},
		{"/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", ""},
		{"/apis/flowcontrol.apiserver.k8s.io/v1", "flowschemas", "FlowSchema", ""},
		{"/apis/authentication.k8s.io/v1", "tokenreviews", "TokenReview", `,"spec":{"token":"x"}`},
		{"/apis/authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", `,"spec":{"user":"jane","nonResourceAttributes":{"path":"/","verb":"get"}}`},
	} {
		group := strings.TrimPrefix(strings.TrimPrefix(tc.prefix, "/apis/"), "/api/")
		object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"mallory"}%s}`, group, tc.kind, tc.spec)
		if code, body, err := i.ask(owner, "POST", tc.prefix+"/"+tc.plural, object); err != nil || code != http.StatusForbidden {
			t.Errorf("control: create %s where it is: %d %.200s %v", tc.plural, code, body, err)
		}
		for _, r := range []struct{ method, path string }{
			{"GET", ""}, {"POST", ""}, {"DELETE", ""}, {"GET", "/cluster-admin"}, {"PUT", "/mallory"}, {"PATCH", "/mallory"}, {"DELETE", "/default"},
		} {
			path := tc.prefix + "/namespaces/owned/" + tc.plural + r.path
			body, header := "", ""
			switch r.method {
			case "POST", "PUT":
				body = object
			case "PATCH":
				body, header = object, merge
			}
			code, answer, err := i.ask(owner, r.method, path, body, header)
			if err != nil || code != http.StatusNotFound && code != http.StatusMethodNotAllowed && code != http.StatusForbidden {
				t.Errorf("%s %s: %d %.300s %v", r.method, path, code, answer, err)
			}
		}
		if code, _, err := i.ask(i.admin, "GET", tc.prefix+"/"+tc.plural+"/mallory", ""); err != nil || code != http.StatusNotFound && code != http.StatusMethodNotAllowed {
			t.Errorf("%s/mallory exists: %d %v", tc.plural, code, err)
		}
	}
	for _, path := range []string{"/api/v1/namespaces/b", "/api/v1/namespaces/owned/../b/secrets", "/api/v1/namespaces/kube-system/secrets", "/api/v1/namespaces", "/api/v1/secrets"} {
		if code, body, err := i.ask(owner, "GET", path, ""); err != nil || code == http.StatusOK {
			t.Errorf("GET %s: %d %.300s %v", path, code, body, err)
		}
	}
}

const rbac = "/apis/rbac.authorization.k8s.io/v1"

// rightsCase is a write of RBAC. SELF is the attacker, SUFFIX makes names unique.
type rightsCase struct {
	name, method, path, contentType, body string
	// invalid means that it is refused for every user.
	invalid bool
}

const (
	everything = `"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`
	toSelf     = `"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"SELF"}]`
	toAdmin    = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}`
	merge      = "Content-Type: application/merge-patch+json"
	jsonPatch  = "Content-Type: application/json-patch+json"
	apply      = "Content-Type: application/apply-patch+yaml"
)

func rbacObject(kind, name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":%q,"metadata":{"name":%q},%s}`, kind, name, more)
}

// escalations are writes by which a user that may only write roles and bindings would gain
// rights.
var escalations = []rightsCase{
	{"a cluster role with everything", "POST", "/clusterroles", "", rbacObject("ClusterRole", "SUFFIX", everything), false},
	{"a cluster role with URLs", "POST", "/clusterroles", "", rbacObject("ClusterRole", "SUFFIX", `"rules":[{"nonResourceURLs":["*"],"verbs":["*"]}]`), false},
	{"a cluster role with secrets", "POST", "/clusterroles", "", rbacObject("ClusterRole", "SUFFIX", `"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]`), false},
	{"a cluster role that may impersonate", "POST", "/clusterroles", "", rbacObject("ClusterRole", "SUFFIX", `"rules":[{"apiGroups":[""],"resources":["groups"],"verbs":["impersonate"],"resourceNames":["system:masters"]}]`), false},
	{"a cluster role that may escalate", "POST", "/clusterroles", "", rbacObject("ClusterRole", "SUFFIX", `"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["escalate","bind"]}]`), false},
	{"a cluster role of a generated name", "POST", "/clusterroles", "", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"generateName":"g-"},` + everything + `}`, false},
	{"a role in a namespace", "POST", "/namespaces/a/roles", "", rbacObject("Role", "SUFFIX", everything), false},
	{"a cluster role by PUT", "PUT", "/clusterroles/mine", "", rbacObject("ClusterRole", "mine", everything), false},
	{"a cluster role by merge patch", "PATCH", "/clusterroles/mine", merge, "{" + everything + "}", false},
	{"a cluster role by JSON patch", "PATCH", "/clusterroles/mine", jsonPatch, `[{"op":"replace","path":"/rules","value":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}]`, false},
	{"a cluster role by apply", "PATCH", "/clusterroles/mine?fieldManager=m&force=true", apply, rbacObject("ClusterRole", "mine", everything), false},
	{"a new cluster role by apply", "PATCH", "/clusterroles/SUFFIX?fieldManager=m", apply, rbacObject("ClusterRole", "SUFFIX", everything), false},
	{"a cluster role that collects others", "POST", "/clusterroles", "", rbacObject("ClusterRole", "SUFFIX", `"aggregationRule":{"clusterRoleSelectors":[{}]}`), false},
	{"a cluster role that collects others, by patch", "PATCH", "/clusterroles/mine", merge, `{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}]}}`, false},
	{"a binding to all", "POST", "/clusterrolebindings", "", rbacObject("ClusterRoleBinding", "SUFFIX", toAdmin+","+toSelf), false},
	{"a binding in a namespace", "POST", "/namespaces/a/rolebindings", "", rbacObject("RoleBinding", "SUFFIX", toAdmin+","+toSelf), false},
	{"a binding to the authenticated", "POST", "/clusterrolebindings", "", rbacObject("ClusterRoleBinding", "SUFFIX", toAdmin+`,"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]`), false},
	{"a binding without subjects", "POST", "/clusterrolebindings", "", rbacObject("ClusterRoleBinding", "SUFFIX", toAdmin), false},
	{"a binding by apply", "PATCH", "/clusterrolebindings/SUFFIX?fieldManager=m", apply, rbacObject("ClusterRoleBinding", "SUFFIX", toAdmin+","+toSelf), false},
	{"a binding of a generated name", "POST", "/clusterrolebindings", "", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"generateName":"g-"},` + toAdmin + "," + toSelf + `}`, false},
	{"subjects of a strong binding by JSON patch", "PATCH", "/clusterrolebindings/cluster-admin", jsonPatch, `[{"op":"add","path":"/subjects/-","value":{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"SELF"}}]`, false},
	{"subjects of a strong binding by merge patch", "PATCH", "/clusterrolebindings/cluster-admin", merge, "{" + toSelf + "}", false},
	{"subjects of a strong binding by apply", "PATCH", "/clusterrolebindings/cluster-admin?fieldManager=m&force=true", apply, rbacObject("ClusterRoleBinding", "cluster-admin", toAdmin+","+toSelf), false},
	{"another role of a binding", "PATCH", "/clusterrolebindings/mine", merge, `{"roleRef":{"name":"cluster-admin"}}`, true},
	{"no role", "POST", "/clusterrolebindings", "", rbacObject("ClusterRoleBinding", "SUFFIX", `"roleRef":null,`+toSelf), true},
	{"a role of another kind", "POST", "/clusterrolebindings", "", rbacObject("ClusterRoleBinding", "SUFFIX", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"clusterrole","name":"cluster-admin"},`+toSelf), true},
	{"a role of another group", "POST", "/clusterrolebindings", "", rbacObject("ClusterRoleBinding", "SUFFIX", `"roleRef":{"apiGroup":"x","kind":"ClusterRole","name":"cluster-admin"},`+toSelf), true},
	{"a role that there is not", "POST", "/clusterrolebindings", "", rbacObject("ClusterRoleBinding", "SUFFIX", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"later"},`+toSelf), false},
	{"a binding whose body names another namespace", "POST", "/namespaces/a/rolebindings", "", fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"SUFFIX","namespace":"kube-system"},%s,%s}`, toAdmin, toSelf), true},
	{"a strong role collected by a weak one, by label", "PATCH", "/clusterroles/cluster-admin", merge, `{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}}`, false},
	{"a strong role collected by a weak one, by JSON patch", "PATCH", "/clusterroles/admin", jsonPatch, `[{"op":"add","path":"/metadata/labels/rbac.authorization.k8s.io~1aggregate-to-view","value":"true"}]`, false},
	{"a strong role collected by a weak one, by apply", "PATCH", "/clusterroles/edit?fieldManager=m&force=true", apply, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"edit","labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}}`, false},
	{"a label of the role for secrets", "PATCH", "/clusterroles/system:aggregate-to-edit", merge, `{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}}}`, false},
}

// A right to write roles and bindings does not include the rights that they grant.
func TestEscalation(t *testing.T) {
	t.Parallel()
	i := target
	const self = "granter"
	i.grant(t, self, "", policyRule{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"},
		Verbs: []string{"get", "list", "create", "update", "patch", "delete"}})
	granter := i.client(i.user(t, self))
	harmless := `"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["get"]}]`
	for _, own := range []struct{ path, body string }{
		{"/clusterroles", rbacObject("ClusterRole", "mine", harmless)},
		{"/clusterrolebindings", rbacObject("ClusterRoleBinding", "mine", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"mine"},`+strings.ReplaceAll(toSelf, "SELF", self))},
	} {
		eventually(t, "control: what the user holds can be given on", func() error {
			code, body, err := i.ask(granter, "POST", rbac+own.path, own.body)
			if err == nil && code != http.StatusCreated {
				err = fmt.Errorf("%d %s", code, body)
			}
			return err
		})
	}
	// A role that labels of the user select grants nothing new.
	if code, body, err := i.ask(granter, "PATCH", rbac+"/clusterroles/mine", `{"metadata":{"labels":{"a":"b"}}}`, merge); err != nil || code != http.StatusOK {
		t.Errorf("control: a label of a role that the user holds: %d %s %v", code, body, err)
	}
	for n, tc := range escalations {
		replace := strings.NewReplacer("SELF", self, "SUFFIX", fmt.Sprint("escalation-", n))
		path, body := rbac+replace.Replace(tc.path), replace.Replace(tc.body)
		code, answer, err := i.ask(granter, tc.method, path, body, tc.contentType)
		refused := code == http.StatusForbidden || code == http.StatusNotFound || tc.invalid && (code == http.StatusBadRequest || code == http.StatusUnprocessableEntity)
		if err != nil || !refused {
			t.Errorf("%s: %d %.300s %v", tc.name, code, answer, err)
		}
		code, answer, err = i.ask(i.admin, tc.method, query(path, "dryRun=All"), body, tc.contentType)
		if err != nil || (code < 300) == tc.invalid {
			t.Errorf("control: %s, by an administrator: %d %.300s %v", tc.name, code, answer, err)
		}
	}
	for _, verb := range []string{"*", "get", "create"} {
		if i.may(t, self, "kube-system", policyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{verb}}) == nil {
			t.Errorf("%s may %s secrets", self, verb)
		}
	}
}
