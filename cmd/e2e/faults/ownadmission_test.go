package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
	"portico/gateway/lastgood"
	"portico/resource"
	"portico/resource/etcd"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// administrator returns a client of the administrator.
func administrator(t *testing.T, up *e2e.Installation) holder {
	t.Helper()
	return holder{e2e.HTTPClient(t, up.Config(t)), up.Endpoint, ""}
}

// post creates an object and returns an error unless the response has the code and the texts.
func (c holder) post(path, body string, code int, texts ...string) error {
	_, err := c.ask(http.MethodPost, path, body, "application/json", code, texts...)
	return err
}

const namesPolicy = "!has(object.metadata.name) || !object.metadata.name.contains('vapdeny')"

// stored returns, by the path of its collection, an object of each resource that can be
// created and listed; it has a name and no other fields.
func (c holder) stored(t *testing.T, name string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, root := range []string{"/api", "/apis"} {
		text, err := c.ask(http.MethodGet, root, "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", http.StatusOK)
		if err != nil {
			t.Fatal(err)
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					verbs := strings.Join(r.Verbs, " ")
					if !strings.Contains(verbs, "create") || !strings.Contains(verbs, "list") {
						continue
					}
					path := root + "/" + strings.TrimPrefix(g.Name+"/"+v.Version, "/") + "/"
					if r.Scope == apidiscovery.ScopeNamespace {
						path += "namespaces/default/"
					}
					out[path+r.Resource] = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`,
						strings.TrimPrefix(g.Name+"/"+v.Version, "/"), r.ResponseKind.Kind, name)
				}
			}
		}
	}
	return out
}

// A webhook is called for, and a policy applies to, every kind that any process stores, the
// gateway's own kinds included; the kinds of admissionregistration.k8s.io and kinds that are
// not stored are exempt. What the gateway itself writes is exempt as well: with a policy that
// denies every write of its kinds, the groups of new definitions are registered and the
// installation starts.
func TestAdmissionOfEveryStoredKind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := e2e.Install(t, dir)
	c := administrator(t, up)
	t.Run("parameters of policies", func(t *testing.T) { c.readsParameters(t) })
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "every.example.com")
	c.callsWebhooks(t, up)
	e2e.Policy(t, up, "frozen", `["rbac.authorization.k8s.io","apiregistration.k8s.io","gateway.portico.dev","flowcontrol.apiserver.k8s.io"]`, `["*"]`, "false", "by the policy")
	refused := func() error {
		for path, body := range ownObjects("any") {
			if err := c.post(path, body, http.StatusUnprocessableEntity, "by the policy"); err != nil {
				return err
			}
		}
		return nil
	}
	e2e.Eventually(t, "the policy applies", refused)
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "frozen.example.com")
	e2e.Eventually(t, "its APIService has a status", c.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.frozen.example.com", http.StatusOK, `"type":"Available","status":"True"`))
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	c = administrator(t, e2e.Install(t, dir))
	if err := refused(); err != nil {
		t.Errorf("when the installation is ready again: %v", err)
	}
}

// callsWebhooks checks that a webhook for everything is called for every stored kind.
func (c holder) callsWebhooks(t *testing.T, up *e2e.Installation) {
	t.Helper()
	denying := e2e.StartWebhook(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: !strings.Contains(string(r.Object.Raw), "hookdeny"), Result: &metav1.Status{Message: "by the hook"}}
	})
	e2e.CallWebhook(t, up, "every", denying, `["*"]`, `["*"]`, `{}`)
	called := 0
	for path, body := range c.stored(t, "hookdeny") {
		if strings.HasPrefix(path, e2e.Admission) {
			if answer, _ := c.ask(http.MethodPost, path, body, "application/json", http.StatusUnprocessableEntity); strings.Contains(answer, "by the hook") {
				t.Errorf("the webhook is called for %s", path)
			}
			continue
		}
		called++
		e2e.Eventually(t, "the webhook is called for "+path, func() error { return c.post(path, body, http.StatusBadRequest, "by the hook") })
	}
	if called < 20 {
		t.Errorf("only %d resources were found", called)
	}
	review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","metadata":{"name":"hookdeny"},"spec":{"nonResourceAttributes":{"path":"/hookdeny","verb":"get"}}}`
	if answer, _ := c.ask(http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, "application/json", http.StatusCreated); strings.Contains(answer, "by the hook") {
		t.Error("the webhook is called for a review")
	}
}

// ownObjects returns, by the path of its collection, an object of each of the gateway's kinds.
func ownObjects(name string) map[string]string {
	const role = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"}]`
	out := map[string]string{}
	for path, rest := range map[string]string{
		rbacPath + "clusterroles|ClusterRole":                                                          `"rules":[]`,
		rbacPath + "clusterrolebindings|ClusterRoleBinding":                                            role,
		rbacPath + "namespaces/default/roles|Role":                                                     `"rules":[]`,
		rbacPath + "namespaces/default/rolebindings|RoleBinding":                                       role,
		"/apis/apiregistration.k8s.io/v1/apiservices|APIService":                                       `"spec":{"group":"NAME.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,"service":{"namespace":"default","name":"s"}}`,
		"/apis/gateway.portico.dev/v1alpha1/backends|Backend":                                          `"spec":{"endpoints":[{"url":"https://127.0.0.1:1"}]}`,
		"/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations|PriorityLevelConfiguration": `"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}`,
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas|FlowSchema":                                 `"spec":{"priorityLevelConfiguration":{"name":"catch-all"}}`,
	} {
		path, kind, _ := strings.Cut(path, "|")
		object := name
		if kind == "APIService" {
			object = "v1." + name + ".example.com"
		}
		out[path] = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%s}`,
			strings.Join(strings.Split(path, "/")[2:4], "/"), kind, object, strings.ReplaceAll(rest, "NAME", name))
	}
	return out
}

// While the core server, which stores namespaces, webhooks and policies, is away, writes are
// admitted by what is known.
//
//   - The gateway applies the policies that it read last to its own kinds, also after a restart.
//   - Members of system:masters may write APIServices and Backends in spite of them, because
//     these say where the core server is.
//   - Objects are created in namespaces that a server knows; others are refused with 503, because
//     they cannot be looked up. A server that starts now knows none.
//   - A CRD server that starts now knows no webhook or policy: it serves reads and refuses writes.
func TestWritesWhileCoreIsAway(t *testing.T) {
	t.Parallel()
	a := newCluster(t, "core", "crd")
	a.start(t, "gateway", "core", "crd")
	a.reached(t, "/api/v1/namespaces/default")
	a.reached(t, "/readyz/writes")
	a.reached(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	c := a.as(t, "")
	const group, widgets = "away.example.com", "/apis/away.example.com/v1/namespaces/default/widgets"
	e2e.Define(t, e2e.DynamicClient(t, a.up.Config(t)), group)
	e2e.Policy(t, a.up, "names", `["*"]`, `["*"]`, namesPolicy, "by the policy")
	role := func(name string, code int, texts ...string) func() error {
		return func() error {
			return c.post(rbacPath+"clusterroles", fmt.Sprintf(`{"metadata":{"name":%q},"rules":[]}`, name), code, texts...)
		}
	}
	// create creates an object of the gateway's and one of the CRD server in a namespace.
	create := func(namespace, name string, code int, text string) error {
		widget, err := e2e.Widget(group, name).MarshalJSON()
		bindings := rbacPath + "namespaces/default/rolebindings"
		return errors.Join(err, c.post(strings.Replace(widgets, "default", namespace, 1), string(widget), code, text),
			c.post(strings.Replace(bindings, "default", namespace, 1), ownObjects(name)[bindings], code, text))
	}
	const backends, unknown = "/apis/gateway.portico.dev/v1alpha1/backends", `namespace \"%s\" cannot be looked up`
	denied := role("vapdeny", http.StatusUnprocessableEntity, "by the policy")
	e2e.Eventually(t, "the policy applies", denied)
	must(t, c.post(backends, ownObjects("vapdeny")[backends], http.StatusUnprocessableEntity, "by the policy"))
	must(t, create("default", "before", http.StatusCreated, ""))
	must(t, create("nowhere", "x", http.StatusNotFound, `namespaces \"nowhere\" not found`))
	a.keptPolicies(t)

	a.kill9(t, "core")
	e2e.Eventually(t, "system:masters may repair", func() error {
		return c.post(backends, ownObjects("vapdeny")[backends], http.StatusCreated)
	})
	must(t, denied())
	must(t, role("fine", http.StatusCreated)())
	must(t, create("default", "while", http.StatusCreated, ""))
	must(t, create("nowhere", "x", http.StatusServiceUnavailable, fmt.Sprintf(unknown, "nowhere")))

	a.kill9(t, "gateway", "crd")
	a.start(t, "gateway", "crd")
	a.reached(t, "/readyz")
	a.reached(t, widgets+"/while")
	must(t, denied())
	must(t, role("finer", http.StatusCreated)())
	must(t, create("default", "after", http.StatusServiceUnavailable, fmt.Sprintf(unknown, "default")))
	_, err := c.ask(http.MethodDelete, widgets+"/while", "", "application/json", http.StatusServiceUnavailable, "webhooks and policies are not known yet")
	must(t, err)
	a.start(t, "core")
	e2e.Eventually(t, "a missing namespace is 404 again", func() error { return create("nowhere", "x", http.StatusNotFound, `namespaces \"nowhere\" not found`) })
	tried := 0
	e2e.Eventually(t, "creates pass again", func() error {
		tried++
		return create("default", fmt.Sprint("again-", tried), http.StatusCreated, "")
	})
	must(t, denied())
}

// keptPolicies waits until etcd has the webhooks and policies for a restart of the gateway, with
// the policy "names" and its binding. They are saved every two seconds.
func (a *cluster) keptPolicies(t *testing.T) {
	t.Helper()
	a.lastGood(t, "policies are in last-good", func(docs map[string]etcd.Document) error {
		for _, name := range []string{
			"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		} {
			objects, err := lastgood.UnpackObjects(docs["core/admission/"+name].Data)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			named := func(o *resource.Object) bool { return o.Name == "names" }
			if strings.HasPrefix(name, "validatingadmission") && !slices.ContainsFunc(objects, named) {
				return errors.New(name + " lack names")
			}
		}
		return nil
	})
}
