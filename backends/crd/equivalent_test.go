package crd

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/rest"
	"portico/resource/serve/metrics"
)

// hostsAdmission has webhooks and policies with rules for v1beta1 of hosts. %[1]s and %[2]s are the URL and the
// certificate of the webhooks.
const hostsAdmission = `
kind: MutatingAdmissionPolicy
metadata: {name: label}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    matchPolicy: Equivalent
    namespaceSelector: {}
    objectSelector: {}
    resourceRules: [{apiGroups: [example.com], apiVersions: [v1beta1], operations: [CREATE], resources: [hosts], scope: "*"}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: Object.metadata.labels{address: object.spec.address == "example.org:80" ? "seen" : "other"}}}'}
---
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label}
---
kind: MutatingWebhookConfiguration
metadata: {name: move}
webhooks:
- name: move.example.com
  clientConfig: {url: "%[1]s/move", caBundle: %[2]s}
  rules: [{apiGroups: [example.com], apiVersions: [v1beta1], operations: [CREATE], resources: [hosts], scope: "*"}]
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  matchPolicy: Equivalent
  reinvocationPolicy: Never
  timeoutSeconds: 30
  namespaceSelector: {}
  objectSelector: {}
---
kind: ValidatingWebhookConfiguration
metadata: {name: look}
webhooks:
- &look
  name: look.example.com
  clientConfig: {url: "%[1]s/look", caBundle: %[2]s}
  rules: [{apiGroups: [example.com], apiVersions: [v1beta1], operations: ["*"], resources: [hosts, hosts/status], scope: "*"}]
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  matchPolicy: Equivalent
  timeoutSeconds: 30
  namespaceSelector: {}
  objectSelector: {}
- <<: *look
  name: exact.example.com
  clientConfig: {url: "%[1]s/exact", caBundle: %[2]s}
  matchPolicy: Exact
---
kind: ValidatingAdmissionPolicy
metadata: {name: port}
spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Equivalent
    namespaceSelector: {}
    objectSelector: {}
    resourceRules: [{apiGroups: [example.com], apiVersions: [v1beta1], operations: [UPDATE], resources: [hosts], scope: "*"}]
  validations:
  - {expression: '!object.spec.address.endsWith(":22")', messageExpression: '"no " + object.spec.address + " after " + oldObject.spec.address'}
---
kind: ValidatingAdmissionPolicyBinding
metadata: {name: port}
spec: {policyName: port, validationActions: [Deny]}
`

// reviews is a server of admission webhooks, which records what it is asked.
type reviews struct {
	mu    sync.Mutex
	asked map[string][]*admissionreview.AdmissionRequest // by path
}

func (r *reviews) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	review := &admissionreview.AdmissionReview{}
	if err := json.NewDecoder(req.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.asked[req.URL.Path] = append(r.asked[req.URL.Path], review.Request)
	r.mu.Unlock()
	review.Response = &admissionreview.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if req.URL.Path == "/move" {
		review.Response.PatchType = new(admissionreview.PatchTypeJSONPatch)
		review.Response.Patch = []byte(`[{"op":"replace","path":"/spec/address","value":"moved.example.org:81"}]`)
	}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// take returns the requests since the last call.
func (r *reviews) take(path string) []*admissionreview.AdmissionRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.asked[path]
	delete(r.asked, path)
	return out
}

// admitting returns a CRD server with admission by hostsAdmission, and the server of the webhooks.
func admitting(t *testing.T) (*Server, *reviews) {
	t.Helper()
	hooks := &reviews{asked: map[string][]*admissionreview.AdmissionRequest{}}
	web := httptest.NewUnstartedServer(hooks)
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	t.Cleanup(web.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})

	configurations := memstore.New()
	put(t, configurations.Store(namespaceInfo()), `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}`)
	for doc := range strings.SplitSeq(fmt.Sprintf(hostsAdmission, web.URL, base64.StdEncoding.EncodeToString(ca)), "\n---\n") {
		var obj map[string]any
		if err := yaml.Unmarshal([]byte(doc), &obj); err != nil {
			t.Fatal(err)
		}
		obj["apiVersion"] = "admissionregistration.k8s.io/v1"
		kind := obj["kind"].(string)
		plural := strings.ToLower(kind) + "s"
		if stem, ok := strings.CutSuffix(plural, "policys"); ok {
			plural = stem + "policies"
		}
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		put(t, configurations.Store(&resource.Info{Group: "admissionregistration.k8s.io", Versions: []string{"v1"}, Resource: plural, Kind: kind}), string(data))
	}
	engine, err := admission.NewEngine(admission.EngineConfig{
		Transport: http.DefaultTransport, Source: func(i *resource.Info) (resource.Store, rest.Codec) { return configurations.Store(i), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, engine.Run)
	await.Until(t, "webhooks and policies are known", func() bool { return engine.Ready() == nil })

	kept := memstore.New()
	s := &Server{log: slog.New(slog.DiscardHandler), metrics: metrics.New(), namespaces: namespaceStates(t), engine: engine}
	serveFrom(t, s, kept, kept.Feed())
	await.Until(t, "everything was read", s.cache.Ready)
	return s, hooks
}

// Rules for one version of a custom resource apply to writes at the others: objects reach webhooks and policies in the
// version of the rule, and their changes return in the version of the request.
func TestAdmissionOfOtherVersions(t *testing.T) {
	t.Parallel()
	s, hooks := admitting(t)
	s.installConverting(t)
	look := func(what, object, old string) {
		t.Helper()
		asked := hooks.take("/look")
		if len(asked) != 1 {
			t.Fatalf("%s: the webhook was asked %d times, want once", what, len(asked))
		}
		r := asked[0]
		if r.Kind.Version != "v1beta1" || r.Resource.Version != "v1beta1" || r.RequestKind.Version != "v1" || r.RequestResource.Version != "v1" {
			t.Errorf("%s: kind %v, resource %v of a request for %v, %v", what, r.Kind, r.Resource, r.RequestKind, r.RequestResource)
		}
		for want, raw := range map[string][]byte{object: r.Object.Raw, old: r.OldObject.Raw} {
			if want != "" && !(strings.Contains(string(raw), `"apiVersion":"example.com/v1beta1"`) && strings.Contains(string(raw), `"address":"`+want+`"`)) {
				t.Errorf("%s: the webhook got %s, want address %s", what, raw, want)
			}
		}
	}
	made := s.must(t, "POST", hostsV1, "", hostBody("v1", "a", "{host: example.org, port: 80}"))
	if at(made, "apiVersion") != "example.com/v1" || at(made, "spec", "host") != "moved.example.org" || at(made, "spec", "port") != 81.0 ||
		at(made, "metadata", "labels", "address") != "seen" {
		t.Errorf("created %v", made)
	}
	look("create", "moved.example.org:81", "")

	merge := func(sub, patch string) answer {
		return s.send(t, "PATCH", hostsV1+"/a"+sub, "application/merge-patch+json", patch)
	}
	if a := merge("", `{"spec":{"port":22}}`); a.code != 422 || !strings.Contains(string(a.body), "no moved.example.org:22 after moved.example.org:81") {
		t.Errorf("the policy did not deny: %d %s", a.code, a.body)
	}
	if a := merge("", `{"spec":{"port":23}}`); a.code != 200 {
		t.Errorf("update: %d %s", a.code, a.body)
	}
	look("update", "moved.example.org:23", "moved.example.org:81")
	if a := merge("/status", `{"status":{"phase":"up"}}`); a.code != 200 {
		t.Errorf("status: %d %s", a.code, a.body)
	}
	look("status", "moved.example.org:23", "moved.example.org:23")
	s.must(t, "DELETE", hostsV1+"/a", "", "")
	look("delete", "", "moved.example.org:23")

	s.must(t, "PATCH", hostsV1+"/b?fieldManager=m", "application/apply-patch+yaml", hostBody("v1", "b", "{host: example.org, port: 80}"))
	look("apply", "moved.example.org:81", "")
	if asked := hooks.take("/exact"); len(asked) > 0 {
		t.Errorf("a webhook with matchPolicy Exact was asked %d times", len(asked))
	}
	s.must(t, "POST", hostsBeta, "", hostBody("v1beta1", "c", "{address: 'example.org:80'}"))
	if asked := hooks.take("/exact"); len(asked) != 1 || asked[0].RequestKind.Version != "v1beta1" {
		t.Errorf("in the version of the rule the webhook was asked %d times", len(asked))
	}
}
