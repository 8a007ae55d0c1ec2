package attack

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Each attribute of an impersonated user needs a right of its own.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	i := target
	i.must(t, "POST", "/api/v1/namespaces/a/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"posed"}}`)
	impersonate := func(group, resource string, names ...string) policyRule {
		return policyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"impersonate"}}
	}
	i.grant(t, "poser", "", impersonate("", "users", "bob"), impersonate("", "groups", "team"),
		impersonate("authentication.k8s.io", "uids", "7"), impersonate("authentication.k8s.io", "userextras/scopes", "view"))
	i.grant(t, "poser", "a", impersonate("", "serviceaccounts", "posed"))
	poser, nothing := i.client(i.user(t, "poser")), i.client(i.user(t, "nothing"))
	const user, group = "Impersonate-User: bob", "Impersonate-Group: team"
	for _, tc := range []struct {
		name   string
		client *http.Client
		header []string
		code   int
		user   string
		groups []string // beside system:authenticated
	}{
		{"control: a user", poser, []string{user}, 201, "bob", nil},
		{"control: a user and a group", poser, []string{user, group}, 201, "bob", []string{"team"}},
		{"control: everything", poser, []string{user, group, "Impersonate-Uid: 7", "Impersonate-Extra-Scopes: view"}, 201, "bob", []string{"team"}},
		{"control: a service account", poser, []string{"Impersonate-User: system:serviceaccount:a:posed"}, 201, "system:serviceaccount:a:posed", []string{"system:serviceaccounts", "system:serviceaccounts:a"}},
		{"control: names in lower case", poser, []string{"impersonate-user: bob", "impersonate-group: team"}, 201, "bob", []string{"team"}},
		{"a user without a right", nothing, []string{user}, 403, "", nil},
		{"another user", poser, []string{"Impersonate-User: alice"}, 403, "", nil},
		{"the administrator", poser, []string{"Impersonate-User: portico:admin"}, 403, "", nil},
		{"the user in another case", poser, []string{"Impersonate-User: Bob"}, 403, "", nil},
		{"another group", poser, []string{user, "Impersonate-Group: admins"}, 403, "", nil},
		{"masters alone", poser, []string{user, "Impersonate-Group: system:masters"}, 403, "", nil},
		{"masters second", poser, []string{user, group, "Impersonate-Group: system:masters"}, 403, "", nil},
		{"masters behind a comma", poser, []string{user, "Impersonate-Group: team,system:masters"}, 403, "", nil},
		{"masters in lower-case headers", poser, []string{user, "impersonate-group: system:masters"}, 403, "", nil},
		{"masters in another case", poser, []string{user, "IMPERSONATE-GROUP: system:masters"}, 403, "", nil},
		{"masters with underscores", poser, []string{user, "Impersonate_Group: system:masters"}, 201, "bob", nil},
		{"masters of nobody", poser, []string{"Impersonate-Group: system:masters"}, 400, "", nil},
		{"the authenticated, who are a group as well", poser, []string{user, "Impersonate-Group: system:authenticated"}, 403, "", nil},
		{"the unauthenticated", poser, []string{user, "Impersonate-Group: system:unauthenticated"}, 403, "", nil},
		{"another uid", poser, []string{user, "Impersonate-Uid: 8"}, 403, "", nil},
		{"a uid of nobody", poser, []string{"Impersonate-Uid: 7"}, 400, "", nil},
		{"another value of an extra", poser, []string{user, "Impersonate-Extra-Scopes: all"}, 403, "", nil},
		{"a second value of an extra", poser, []string{user, "Impersonate-Extra-Scopes: view", "Impersonate-Extra-Scopes: all"}, 403, "", nil},
		{"an extra in another case", poser, []string{user, "Impersonate-Extra-SCOPES: view"}, 201, "bob", nil},
		{"another extra", poser, []string{user, "Impersonate-Extra-Other: view"}, 403, "", nil},
		{"an escaped extra", poser, []string{user, "Impersonate-Extra-%4fther: view"}, 403, "", nil},
		{"an extra without a name", poser, []string{user, "Impersonate-Extra-: view"}, 403, "", nil},
		{"an extra of nobody", poser, []string{"Impersonate-Extra-Scopes: view"}, 400, "", nil},
		{"another service account", poser, []string{"Impersonate-User: system:serviceaccount:a:default"}, 403, "", nil},
		{"a service account of that name elsewhere", poser, []string{"Impersonate-User: system:serviceaccount:b:posed"}, 403, "", nil},
		{"a service account without a name", poser, []string{"Impersonate-User: system:serviceaccount:a:"}, 403, "", nil},
		{"a service account with a part too many", poser, []string{"Impersonate-User: system:serviceaccount:a:posed:x"}, 403, "", nil},
		{"a node", poser, []string{"Impersonate-User: system:node:n"}, 403, "", nil},
		{"nobody", poser, []string{"Impersonate-User: system:anonymous"}, 403, "", nil},
		{"an empty user", poser, []string{"Impersonate-User: ", group}, 400, "", nil},
		{"two users, the second one", poser, []string{user, "Impersonate-User: alice"}, 201, "bob", nil},
		{"two users, the first one", poser, []string{"Impersonate-User: alice", user}, 403, "", nil},
		{"by nobody", i.client(nil), []string{user}, 403, "", nil},
	} {
		code, user, groups, err := i.review(tc.client, tc.header...)
		want := tc.groups
		if tc.code == http.StatusCreated {
			want = append(slices.Clone(want), "system:authenticated")
		}
		if err != nil || code != tc.code || user != tc.user || !slices.Equal(groups, want) {
			t.Errorf("%s: %d as %q of %q, %v; want %d as %q of %q", tc.name, code, user, groups, err, tc.code, tc.user, want)
		}
	}
}

// constrainedWrites are requests as boss, an administrator, by an impersonator that may, as boss,
// get, update and patch ConfigMaps and custom resources, update Leases, update and patch
// RoleBindings, create admission policies, and get pods/exec, and nothing more.
var constrainedWrites = []struct {
	name, method, path, body, contentType string
	code                                  int
}{
	{"control: a patch", "PATCH", "/api/v1/namespaces/a/configmaps/constrained", `{"data":{"a":"b"}}`, merge, 200},
	{"control: an apply that updates", "PATCH", "/api/v1/namespaces/a/configmaps/constrained?fieldManager=x", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"constrained"},"data":{"c":"d"}}`, apply, 200},
	{"control: a policy without parameters", "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All", policyWith(""), "", 201},
	{"a creation", "POST", "/api/v1/namespaces/a/configmaps", `{"metadata":{"name":"constrained-1"}}`, "", 403},
	{"a creation by PUT", "PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/constrained", `{"metadata":{"name":"constrained"}}`, "", 403},
	{"a creation by apply", "PATCH", "/api/v1/namespaces/a/configmaps/constrained-3?fieldManager=x", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"constrained-3"}}`, apply, 403},
	{"a custom resource created by apply", "PATCH", "/apis/constrained.example.com/v1/namespaces/a/things/one?fieldManager=x", `{"apiVersion":"constrained.example.com/v1","kind":"Thing","metadata":{"name":"one"}}`, apply, 403},
	{"a binding created by PUT", "PUT", rbac + "/namespaces/a/rolebindings/constrained-2", rbacObject("RoleBinding", "constrained-2", toAdmin+","+toSelf), "", 403},
	{"a binding created by apply", "PATCH", rbac + "/namespaces/a/rolebindings/constrained-3?fieldManager=x", rbacObject("RoleBinding", "constrained-3", toAdmin+","+toSelf), apply, 403},
	{"another subject of a binding", "PATCH", rbac + "/namespaces/a/rolebindings/constrained", "{" + toSelf + "}", merge, 403},
	{"parameters of a policy", "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All", policyWith(`"paramKind":{"apiVersion":"v1","kind":"Secret"},`), "", 422},
}

func policyWith(params string) string {
	return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"constrained"},"spec":{` + params +
		`"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nones"]}]},"validations":[{"expression":"true"}]}}`
}

// A constrained impersonation has the rights of its constraint in all decisions of a request: in
// the gateway, the core server and the CRD server.
func TestConstrainedImpersonation(t *testing.T) {
	t.Parallel()
	i := target
	const as, admission, authorization = "Impersonate-User: constrained-boss", "admissionregistration.k8s.io", "authorization.k8s.io"
	i.must(t, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"things.constrained.example.com"},"spec":{"group":"constrained.example.com","scope":"Namespaced",`+
		`"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	t.Cleanup(func() {
		i.must(t, "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.constrained.example.com", "")
	})
	eventually(t, "the custom resource", func() error { return i.answers("/apis/constrained.example.com/v1/things", 200, "") })
	i.must(t, "POST", "/api/v1/namespaces/a/configmaps", `{"metadata":{"name":"constrained"}}`)
	i.must(t, "POST", rbac+"/namespaces/a/rolebindings", rbacObject("RoleBinding", "constrained", toAdmin))
	i.bindRole(t, "constrained-boss", "cluster-admin")
	right := func(group, resource string, verbs ...string) policyRule {
		return policyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	const on = "impersonate-on:user-info:"
	boss := right("authentication.k8s.io", "users", "impersonate:user-info")
	boss.ResourceNames = []string{"constrained-boss"}
	i.grant(t, "constrained-imp", "", boss, right("", "configmaps", on+"get", on+"update", on+"patch"), right("constrained.example.com", "things", on+"get", on+"update", on+"patch"),
		right("coordination.k8s.io", "leases", on+"update"),
		right("rbac.authorization.k8s.io", "rolebindings", on+"update", on+"patch"), right(admission, "validatingadmissionpolicies", on+"create"),
		right("", "pods/exec", on+"get"), right(authorization, "selfsubjectaccessreviews", on+"create"))
	i.grant(t, "constrained-more", "", boss, right("coordination.k8s.io", "leases", on+"update", on+"create"), right("", "pods/exec", on+"get", on+"create"))
	imp := i.user(t, "constrained-imp")
	client := i.client(imp)
	for _, tc := range constrainedWrites {
		code, body, err := i.ask(client, tc.method, tc.path, strings.ReplaceAll(tc.body, "SELF", "constrained-imp"), tc.contentType, as)
		if err != nil || code != tc.code {
			t.Errorf("%s: %d %.500s %v, want %d", tc.name, code, body, err, tc.code)
		}
	}
	more := i.user(t, "constrained-more")
	if code, body, err := i.ask(i.client(more), "PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/constrained-more", `{"metadata":{"name":"constrained-more"}}`, as); err != nil || code != 201 {
		t.Errorf("control: a creation by PUT with the right to create: %d %.500s %v", code, body, err)
	}
	for name, c := range map[string]struct {
		certificate *tls.Certificate
		code        int
	}{"exec without the right to create": {imp, 403}, "control: exec": {more, 404}} {
		a := i.send(t, c.certificate, "GET", "GET /api/v1/namespaces/a/pods/none/exec?command=id HTTP/1.1\r\nHost: localhost\r\n"+as+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n")
		if err := a.among(c.code); err != nil {
			t.Errorf("%s: %v, want %d", name, err, c.code)
		}
	}
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"VERB","resource":"configmaps","namespace":"a"}}}`
	for verb, want := range map[string]string{"create": `"allowed":false`, "patch": `"allowed":true`} {
		code, body, err := i.ask(client, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", strings.ReplaceAll(review, "VERB", verb), as)
		if err != nil || code != 201 || !strings.Contains(body, want) {
			t.Errorf("a review of %s: %d %.500s %v, want %s", verb, code, body, err, want)
		}
	}
}
