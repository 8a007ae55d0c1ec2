package admission

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"portico/internal/testing/await"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A review has the fields of docs/wire.md 10.2, for built-in kinds and custom resources.
func TestReview(t *testing.T) {
	b, hook := newBench(t), newHookServer(t, allow)
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook)))
	for name, path := range map[string]string{configMap("x"): configMapsPath, widget("x"): widgetsPath} {
		b.must(http.MethodPost, path+"?fieldManager=m", name)
		created := hook.asked()
		b.must(http.MethodPatch, path+"/x", `{metadata: {labels: {l: v}}}`)
		updated := hook.asked()
		b.must(http.MethodDelete, path+"/x", "")
		deleted := hook.asked()
		if len(created) != 1 || len(updated) != 1 || len(deleted) != 1 {
			t.Fatalf("%s: asked %d, %d and %d times", path, len(created), len(updated), len(deleted))
		}
		r := created[0].Request
		if r.Name != "x" || r.Namespace != "default" || r.Operation != "CREATE" || *r.DryRun || r.UserInfo.Username != "alice" ||
			r.UserInfo.UID != "u-7" || r.UserInfo.Groups[0] != "people" || r.UserInfo.Extra["scope"][0] != "a" {
			t.Errorf("create: %+v", r)
		}
		if r.Kind.Kind != r.RequestKind.Kind || r.Resource != *r.RequestResource || r.Resource.Resource != strings.TrimPrefix(path[strings.LastIndex(path, "/"):], "/") {
			t.Errorf("create: %v %v %v %v", r.Kind, r.RequestKind, r.Resource, r.RequestResource)
		}
		if string(r.OldObject.Raw) != "null" && len(r.OldObject.Raw) != 0 {
			t.Errorf("create: old object %s", r.OldObject.Raw)
		}
		fields := map[string]any{}
		if err := json.Unmarshal(r.Object.Raw, &fields); err != nil || fields["kind"] != r.Kind.Kind || fields["apiVersion"] == nil {
			t.Errorf("create: object %s, %v", r.Object.Raw, err)
		}
		if !strings.Contains(string(r.Options.Raw), `"kind":"CreateOptions"`) || !strings.Contains(string(r.Options.Raw), `"fieldManager":"m"`) {
			t.Errorf("create: options %s", r.Options.Raw)
		}
		if r := updated[0].Request; r.Operation != "UPDATE" || len(r.OldObject.Raw) < 10 || !strings.Contains(string(r.Object.Raw), `"l":"v"`) ||
			!strings.Contains(string(r.Options.Raw), "UpdateOptions") {
			t.Errorf("update: %+v", r)
		}
		if r := deleted[0].Request; r.Operation != "DELETE" || len(r.Object.Raw) > 4 || !strings.Contains(string(r.OldObject.Raw), `"name":"x"`) {
			t.Errorf("delete: %+v", r)
		}
	}
	hook.mu.Lock()
	defer hook.mu.Unlock()
	if hook.queries[0] != "timeout=10s" {
		t.Errorf("query %q", hook.queries[0])
	}
}

// A webhook that fails rejects the write, unless its failure policy is Ignore.
func TestFailurePolicy(t *testing.T) {
	b := newBench(t)
	broken := newHookServer(t, func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse { return nil })
	gone := newHookServer(t, allow)
	gone.Close()
	ignore := func(h *admissionv1.ValidatingWebhook) { h.FailurePolicy = new(admissionv1.Ignore) }
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", broken, ignore), validatingHook("b.example.com", gone, ignore)))
	b.must(http.MethodPost, configMapsPath, configMap("x"))
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", broken)))
	b.refused(http.MethodPost, configMapsPath, configMap("z"), 500,
		`Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: an error on the server ("out of order") has prevented the request from succeeding`)
	b.configure(validatingHooks("hooks", validatingHook("b.example.com", gone)))
	_, status := b.do(http.MethodPost, configMapsPath, configMap("z"))
	const prefix, suffix = `Internal error occurred: failed calling webhook "b.example.com": failed to call webhook: Post "https://`, "connect: connection refused"
	if status == nil || status.Code != 500 || !strings.HasPrefix(status.Message, prefix) || !strings.HasSuffix(status.Message, suffix) {
		t.Errorf("%+v", status)
	}
	b.unconfigure(validatingHooks("hooks"))
	b.must(http.MethodPost, configMapsPath, configMap("z"))
}

// A dry run calls webhooks without side effects and is rejected for others.
func TestDryRunNeedsWebhooksWithoutSideEffects(t *testing.T) {
	b, hook := newBench(t), newHookServer(t, allow)
	effects := func(c admissionv1.SideEffectClass) func(*admissionv1.ValidatingWebhook) {
		return func(h *admissionv1.ValidatingWebhook) { h.SideEffects = &c }
	}
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook, effects(admissionv1.SideEffectClassNoneOnDryRun))))
	b.must(http.MethodPost, configMapsPath+"?dryRun=All", configMap("x"))
	if asked := hook.asked(); len(asked) != 1 || !*asked[0].Request.DryRun {
		t.Errorf("asked %+v", asked)
	}
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook, effects(admissionv1.SideEffectClassSome))))
	b.refused(http.MethodPost, configMapsPath+"?dryRun=All", configMap("x"), 400, `admission webhook "a.example.com" does not support dry run`)
	b.must(http.MethodPost, configMapsPath, configMap("x"))
}

// Selectors, conditions, rules and versions decide whether a webhook is called.
func TestSelection(t *testing.T) {
	labelled := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	b := newBench(t)
	for name, test := range map[string]struct {
		change  func(*admissionv1.ValidatingWebhook)
		path    string
		body    string
		matches bool
	}{
		"namespace":       {func(h *admissionv1.ValidatingWebhook) { h.NamespaceSelector = labelled("team", "red") }, configMapsPath, configMap("x"), true},
		"other namespace": {func(h *admissionv1.ValidatingWebhook) { h.NamespaceSelector = labelled("team", "red") }, "/api/v1/namespaces/other/configmaps", configMap("x"), false},
		"namespace itself": {func(h *admissionv1.ValidatingWebhook) { h.NamespaceSelector = labelled("team", "blue") }, "/api/v1/namespaces",
			`{apiVersion: v1, kind: Namespace, metadata: {name: new, labels: {team: blue}}}`, true},
		"object": {func(h *admissionv1.ValidatingWebhook) { h.ObjectSelector = labelled("l", "v") }, widgetsPath,
			`{apiVersion: example.com/v1, kind: Widget, metadata: {name: x, labels: {l: v}}}`, true},
		"condition": {func(h *admissionv1.ValidatingWebhook) {
			h.MatchConditions = []admissionv1.MatchCondition{{Name: "c", Expression: `object.metadata.name == 'x' && request.userInfo.username == 'alice'`}}
		}, widgetsPath, widget("x"), true},
		"other condition": {func(h *admissionv1.ValidatingWebhook) {
			h.MatchConditions = []admissionv1.MatchCondition{{Name: "c", Expression: `object.data.a != '1'`}}
		}, configMapsPath, configMap("x"), false},
		"version": {func(h *admissionv1.ValidatingWebhook) { h.Rules[0].APIVersions = []string{"v2"} }, widgetsPath, widget("x"), true},
		"exact version": {func(h *admissionv1.ValidatingWebhook) {
			h.Rules[0].APIVersions = []string{"v2"}
			h.MatchPolicy = new(admissionv1.Exact)
		}, widgetsPath, widget("x"), false},
	} {
		hook := newHookServer(t, allow)
		b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook, test.change)))
		b.must(http.MethodPost, test.path+"?dryRun=All", test.body)
		if asked := len(hook.asked()); asked > 0 != test.matches {
			t.Errorf("%s: called %d times", name, asked)
		}
	}
}

// A webhook for another version gets the object in that version, and the kind and resource of
// the request.
func TestEquivalentVersion(t *testing.T) {
	b, hook := newBench(t), newHookServer(t, allow)
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook, func(h *admissionv1.ValidatingWebhook) {
		h.Rules[0].APIVersions = []string{"v2"}
	})))
	b.must(http.MethodPost, widgetsPath, widget("x"))
	b.must(http.MethodPatch, widgetsPath+"/x/status", `{status: {ready: true}}`)
	asked := hook.asked()
	if len(asked) != 2 {
		t.Fatalf("asked %d times", len(asked))
	}
	r := asked[0].Request
	if r.Kind.Version != "v2" || r.Resource.Version != "v2" || r.RequestKind.Version != "v1" || r.RequestResource.Version != "v1" ||
		!strings.Contains(string(r.Object.Raw), `"apiVersion":"example.com/v2"`) {
		t.Errorf("%+v", r)
	}
	if r := asked[1].Request; r.SubResource != "status" || r.RequestSubResource != "status" {
		t.Errorf("%+v", r)
	}
}

// Webhooks do not apply to configurations, so a lock-out can be undone.
func TestConfigurationsAreExempt(t *testing.T) {
	b, hook := newBench(t), newHookServer(t, deny("never"))
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook, func(h *admissionv1.ValidatingWebhook) {
		h.Rules[0].APIGroups, h.Rules[0].Resources = []string{"*"}, []string{"*"}
	})))
	b.refused(http.MethodPost, configMapsPath, configMap("x"), 400, `admission webhook "a.example.com" denied the request: never`)
	const path = "/apis/admissionregistration.k8s.io/v1/"
	b.must(http.MethodPost, path+"validatingadmissionpolicybindings",
		`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: x}, spec: {policyName: p}}`)
	b.must(http.MethodDelete, path+"validatingwebhookconfigurations/hooks", "")
	await.Until(b.t, "the webhook is gone", func() bool { return !b.engine.validatingWebhooks.informer.Some() })
	b.must(http.MethodPost, configMapsPath, configMap("x"))
}

// Deleting a collection sends one review per object, which is named by its old state alone.
func TestDeleteCollectionIsReviewed(t *testing.T) {
	b, hook := newBench(t), newHookServer(t, allow)
	b.must(http.MethodPost, configMapsPath, configMap("x"))
	b.must(http.MethodPost, configMapsPath, configMap("z"))
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook)))
	b.must(http.MethodDelete, configMapsPath, "")
	names := map[string]bool{}
	for _, review := range hook.asked() {
		old := metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(review.Request.OldObject.Raw, &old); err != nil {
			t.Fatal(err)
		}
		names[old.Name] = review.Request.Operation == "DELETE" && review.Request.Name == ""
	}
	if len(names) != 2 || !names["x"] || !names["z"] {
		t.Errorf("reviewed %v", names)
	}
}
