package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// gizmos is a kind for the bodies of attacks.
const gizmos = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gizmos.t.example.com"},
"spec":{"group":"t.example.com","scope":"Namespaced","names":{"plural":"gizmos","singular":"gizmo","kind":"Gizmo","listKind":"GizmoList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","properties":{"n":{"type":"integer","maximum":9},"s":{"type":"string","maxLength":5}}},
"status":{"type":"object","properties":{"ok":{"type":"boolean"}}}}}}}]}}`

// define creates gizmos.
func define(t *testing.T) (path string) {
	t.Helper()
	target.must(t, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", gizmos)
	t.Cleanup(func() {
		target.must(t, "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gizmos.t.example.com", "")
	})
	path = "/apis/t.example.com/v1/namespaces/a/gizmos"
	eventually(t, "gizmos are served", func() error { return target.answers(path, http.StatusOK, "") })
	return path
}

// bodies are objects that parsers may read in different ways. HEAD stands for the version
// and the kind. created means that the object may be created; if so, every later response
// has the same content.
var bodies = []struct {
	name, contentType, body string
	created                 bool
}{
	{"control", "", `{HEAD,"metadata":{"name":"g"},"spec":{"n":9,"s":"abcde"}}`, true},
	{"control: YAML", "Content-Type: application/yaml", "apiVersion: t.example.com/v1\nkind: Gizmo\nmetadata: {name: g}\n", true},
	{"the metadata twice", "", `{HEAD,"metadata":{"name":"g"},"metadata":{"name":"mallory","namespace":"b","uid":"x"}}`, false},
	{"the metadata twice, the other way round", "", `{HEAD,"metadata":{"name":"mallory","namespace":"b"},"metadata":{"name":"g"}}`, true},
	{"the name twice", "", `{HEAD,"metadata":{"name":"mallory","name":"g"}}`, true},
	{"the namespace twice", "", `{HEAD,"metadata":{"name":"g","namespace":"a","namespace":"b"}}`, false},
	{"another namespace", "", `{HEAD,"metadata":{"name":"g","namespace":"b"}}`, false},
	{"keys in another case", "", `{HEAD,"Metadata":{"name":"mallory"},"metadata":{"name":"g","Namespace":"b"}}`, true},
	{"an escaped key", "", `{HEAD,"metadata":{"name":"g","\u006eamespace":"b"}}`, false},
	{"escaped metadata", "", `{HEAD,"metadata":{"name":"g"},"\u006detadata":{"name":"mallory","namespace":"b"}}`, false},
	{"what the server sets", "", `{HEAD,"metadata":{"name":"g","uid":"11111111-1111-1111-1111-111111111111","creationTimestamp":"2001-01-01T00:00:00Z","generation":99,"deletionTimestamp":"2001-01-01T00:00:00Z","selfLink":"/x"}}`, true},
	{"a version of the object", "", `{HEAD,"metadata":{"name":"g","resourceVersion":"1"}}`, false},
	{"a value twice, the last one too large", "", `{HEAD,"metadata":{"name":"g"},"spec":{"n":1,"n":99}}`, false},
	{"a value twice, the first one too large", "", `{HEAD,"metadata":{"name":"g"},"spec":{"n":99,"n":1}}`, true},
	{"the spec twice", "", `{HEAD,"metadata":{"name":"g"},"spec":{"n":1},"spec":{"n":99}}`, false},
	{"an escaped value's key", "", `{HEAD,"metadata":{"name":"g"},"spec":{"n":1,"\u006e":99}}`, false},
	{"a number with a fraction of nothing", "", `{HEAD,"metadata":{"name":"g"},"spec":{"n":7.0}}`, true},
	{"a number with a fraction", "", `{HEAD,"metadata":{"name":"g"},"spec":{"n":7.5}}`, false},
	{"a number beyond all", "", `{HEAD,"metadata":{"name":"g"},"spec":{"n":-99999999999999999999999}}`, false},
	{"a text that is too long", "", `{HEAD,"metadata":{"name":"g"},"spec":{"s":"abcdef"}}`, false},
	{"a text that is too long in escapes", "", `{HEAD,"metadata":{"name":"g"},"spec":{"s":"\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"}}`, false},
	{"halves of surrogates", "", `{HEAD,"metadata":{"name":"g"},"spec":{"s":"\ud800\ud800"}}`, true},
	{"no UTF-8", "", "{HEAD,\"metadata\":{\"name\":\"g\"},\"spec\":{\"s\":\"\xff\xfe\"}}", true},
	{"a status beside", "", `{HEAD,"metadata":{"name":"g"},"status":{"ok":true}}`, true},
	{"another object behind", "", `{HEAD,"metadata":{"name":"g"}}{"x":1}`, false},
	{"text behind", "", `{HEAD,"metadata":{"name":"g"}} mallory`, false},
	{"a byte order mark", "", "\xef\xbb\xbf{HEAD,\"metadata\":{\"name\":\"g\"}}", false},
	{"a comment", "", `{HEAD,/* */"metadata":{"name":"g"}}`, false},
	{"a kind before the kind", "", `{"apiVersion":"v1","kind":"Secret",HEAD,"metadata":{"name":"g"}}`, true},
	{"a kind behind the kind", "", `{HEAD,"apiVersion":"v1","kind":"Secret","metadata":{"name":"g"}}`, false},
	{"a path as name", "", `{HEAD,"metadata":{"name":"../x"}}`, false},
	{"an escaped path as name", "", `{HEAD,"metadata":{"name":"a%2fb"}}`, false},
	{"a NUL in the name", "", `{HEAD,"metadata":{"name":"a\u0000b"}}`, false},
	{"a path to generate names of", "", `{HEAD,"metadata":{"generateName":"../../x"}}`, false},
	{"no finalizer", "", `{HEAD,"metadata":{"name":"g","finalizers":["bad finalizer"]}}`, false},
	{"a label with two slashes", "", `{HEAD,"metadata":{"name":"g","labels":{"a/b/c":"x"}}}`, false},
	{"two documents", "Content-Type: application/yaml", "apiVersion: t.example.com/v1\nkind: Gizmo\nmetadata: {name: g}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: mallory}\n", true},
	{"a merge key", "Content-Type: application/yaml", "apiVersion: t.example.com/v1\nkind: Gizmo\nx: &x {name: g, namespace: b}\nmetadata: {<<: *x, namespace: a}\n", true},
	{"a tag", "Content-Type: application/yaml", "apiVersion: t.example.com/v1\nkind: Gizmo\nmetadata: !!binary Zzz\n", false},
	{"aliases of aliases", "Content-Type: application/yaml", aliases(), false},
	{"protobuf", "Content-Type: application/vnd.kubernetes.protobuf", "k8s\x00abc", false},
	{"another charset", "Content-Type: application/json; charset=utf-16", `{HEAD,"metadata":{"name":"g"}}`, true},
	{"text", "Content-Type: text/plain", `{HEAD,"metadata":{"name":"g"}}`, false},
	{"CBOR", "Content-Type: application/cbor", "\xd9\xd9\xf7\xa1", false},
	{"a depth of 100,000", "", `{HEAD,"metadata":{"name":"g"},"spec":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_001), false},
	{"nothing", "", ` `, false},
	{"null", "", `null`, false},
	{"a list", "", `[{HEAD,"metadata":{"name":"g"}}]`, false},
}

// aliases returns a YAML document in which each level refers to the one below it ten times.
func aliases() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for n := range 9 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", n+1, n+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", n), 10), ","))
	}
	return "apiVersion: t.example.com/v1\nkind: Gizmo\nmetadata: {name: g}\n" + text
}

// versionSet is the message of kube-apiserver, with 500, for a create with a
// resourceVersion.
const versionSet = "resourceVersion should not be set on objects to be created"

// A stored object is the one that was validated, in every form of a body: in the namespace
// and of the kind of the path, and valid by its schema.
func TestBodies(t *testing.T) {
	t.Parallel()
	i := target
	path := define(t)
	i.grant(t, "writer", "a", policyRule{APIGroups: []string{"t.example.com"}, Resources: []string{"gizmos"}, Verbs: []string{"*"}})
	writer := i.client(i.user(t, "writer"))
	for _, tc := range bodies {
		code, body, err := i.ask(writer, "POST", path, strings.ReplaceAll(tc.body, "HEAD", `"apiVersion":"t.example.com/v1","kind":"Gizmo"`), tc.contentType)
		if err != nil || (code == http.StatusCreated) != tc.created || !tc.created && (code < 400 || code >= 500 && !strings.Contains(body, versionSet)) {
			t.Errorf("%s: %d %.300s %v", tc.name, code, body, err)
		}
		if code == http.StatusCreated {
			i.oneReading(t, tc.name, path, body)
		}
		if _, listed, _ := i.ask(i.admin, "GET", "/apis/t.example.com/v1/gizmos", ""); !strings.Contains(compact(listed), `"items":[]`) {
			t.Errorf("%s: there are %s", tc.name, listed)
		}
	}
	if _, body, _ := i.ask(i.admin, "GET", "/api/v1/namespaces/a/secrets/"+mark, ""); !strings.Contains(body, "NotFound") {
		t.Errorf("a Secret was created beside: %s", body)
	}
}

// gizmo has the fields that tests check.
type gizmo struct {
	APIVersion, Kind string
	Metadata         struct {
		Name, Namespace, UID, CreationTimestamp, DeletionTimestamp, SelfLink string
		Generation                                                           int
	}
	Spec struct {
		N *float64
		S *string
	}
	Status any
}

// oneReading checks that the stored object is the created one, and deletes it.
func (i *installation) oneReading(t *testing.T, name, path, created string) {
	t.Helper()
	var first, second gizmo
	if err := json.Unmarshal([]byte(created), &first); err != nil {
		t.Errorf("%s: %v in %s", name, err, created)
	}
	m := &first.Metadata
	_, read, err := i.ask(i.admin, "GET", path+"/"+m.Name, "")
	if err == nil {
		err = json.Unmarshal([]byte(read), &second)
	}
	if err != nil || compact(read) != compact(created) {
		t.Errorf("%s: created as\n%s\nand read as\n%s %v", name, created, read, err)
	}
	switch {
	case first.APIVersion != "t.example.com/v1", first.Kind != "Gizmo", m.Name != "g", m.Namespace != "a",
		strings.HasPrefix(m.UID, "11111111"), strings.HasPrefix(m.CreationTimestamp, "2001"), m.DeletionTimestamp != "", m.SelfLink != "", m.Generation != 1,
		first.Spec.N != nil && *first.Spec.N > 9, first.Spec.S != nil && len([]rune(*first.Spec.S)) > 5, first.Status != nil,
		strings.Contains(created, mark), strings.Count(created, `"metadata"`) != 1, strings.Count(created, `"namespace"`) != 1:
		t.Errorf("%s: created as %s", name, created)
	}
	i.must(t, "DELETE", path+"/"+m.Name, "")
}

// Definitions in the gateway's own groups change neither what it serves there nor what is
// stored.
func TestDefinitionsOfTheGatewaysGroups(t *testing.T) {
	t.Parallel()
	i := target
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, tc := range []struct{ group, version, plural, kind, path, want string }{
		{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", rbac + "/clusterroles/cluster-admin", `"rules":[{`},
		{"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", rbac + "/clusterrolebindings/cluster-admin", masters},
		{"rbac.authorization.k8s.io", "v9", "gizmos", "Gizmo", "/apis/rbac.authorization.k8s.io", `"preferredVersion":{"groupVersion":"rbac.authorization.k8s.io/v1"`},
		{"apiregistration.k8s.io", "v1", "apiservices", "APIService", "/apis/apiregistration.k8s.io/v1/apiservices/v1.", `"name":"v1."`},
		{"apiregistration.k8s.io", "v9", "apiservices", "APIService", "/apis/apiregistration.k8s.io", `"preferredVersion":{"groupVersion":"apiregistration.k8s.io/v1"`},
		{"gateway.portico.dev", "v1alpha1", "backends", "Backend", "/apis/gateway.portico.dev/v1alpha1/backends", `"name":"core"`},
		{"gateway.portico.dev", "v9", "backends", "Backend", "/apis/gateway.portico.dev", `"preferredVersion":{"groupVersion":"gateway.portico.dev/v1alpha1"`},
		{"authentication.k8s.io", "v1", "gizmos", "Gizmo", "/apis/authentication.k8s.io/v1", "selfsubjectreviews"},
		{"authorization.k8s.io", "v1", "gizmos", "Gizmo", "/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews"},
		{"authorization.k8s.io", "v9", "gizmos", "Gizmo", "/apis/authorization.k8s.io", `"preferredVersion":{"groupVersion":"authorization.k8s.io/v1"`},
		{"flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", "/apis/flowcontrol.apiserver.k8s.io/v1", "flowschemas"},
		{"apiextensions.k8s.io", "v9", "customresourcedefinitions", "CustomResourceDefinition", "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"},
	} {
		name := tc.plural + "." + tc.group
		before := i.must(t, "GET", tc.path, "")
		if !strings.Contains(compact(before), tc.want) {
			t.Errorf("control: %s has no %q: %s", tc.path, tc.want, before)
		}
		code, body, err := i.ask(i.admin, "POST", definitions, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
			"metadata":{"name":%q,"annotations":{"api-approved.kubernetes.io":"unapproved, a test"}},
			"spec":{"group":%q,"scope":"Cluster","names":{"plural":%q,"kind":%q},"versions":[{"name":%q,"served":true,"storage":true,
			"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, name, tc.group, tc.plural, tc.kind, tc.version))
		if err != nil || code != http.StatusCreated && (code < 400 || code >= 500) {
			t.Errorf("create %s: %d %.300s %v", name, code, body, err)
		}
		if code == http.StatusCreated {
			eventually(t, name+" is established or refused", func() error {
				if text := compact(i.must(t, "GET", definitions+"/"+name, "")); !strings.Contains(text, `"type":"Established"`) {
					return fmt.Errorf("no condition in %s", text)
				}
				return nil
			})
		}
		i.stays(t, name+" is there", tc.path, tc.want)
		if code == http.StatusCreated {
			i.must(t, "DELETE", definitions+"/"+name, "")
			eventually(t, name+" is gone", func() error { return i.answers(definitions+"/"+name, http.StatusNotFound, "") })
		}
		i.stays(t, name+" is gone", tc.path, tc.want)
	}
}

// stays checks that a response of the gateway still contains a text.
func (i *installation) stays(t *testing.T, when, path, want string) {
	t.Helper()
	for range 20 {
		if code, body, err := i.ask(i.admin, "GET", path, ""); err != nil || code != http.StatusOK || !strings.Contains(compact(body), want) {
			t.Errorf("while %s: %s: %d %.500s %v", when, path, code, body, err)
			return
		}
	}
}
