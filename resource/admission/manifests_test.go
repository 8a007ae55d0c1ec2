package admission

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"portico/internal/testing/await"
	"portico/resource/rest"
)

// staticConfiguration writes manifests into a directory and returns an AdmissionConfiguration of a plugin that names it.
func staticConfiguration(t *testing.T, plugin, kind string, manifests ...rest.Object) string {
	t.Helper()
	dir := t.TempDir()
	manifestsDir := filepath.Join(dir, "manifests")
	var docs []string
	for _, obj := range manifests {
		data, err := yaml.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, string(data))
	}
	file := filepath.Join(dir, "configuration.yaml")
	text := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: %s\n"+
		"  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: %s, staticManifestsDir: %s}\n", plugin, kind, manifestsDir)
	for _, err := range []error{
		os.Mkdir(manifestsDir, 0o700), os.WriteFile(filepath.Join(manifestsDir, "a.yaml"), []byte(strings.Join(docs, "\n---\n")), 0o600),
		os.WriteFile(file, []byte(text), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// named gives a configuration the kind of a manifest.
func named[T rest.Object](kind string, obj T) T {
	obj.GetObjectKind().SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind))
	return obj
}

const webhooksPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

// Webhooks of static manifests are called without any configuration in the API, with defaults, and for the kinds of
// admissionregistration.k8s.io too.
func TestStaticWebhooks(t *testing.T) {
	hook := newHookServer(t, deny("by manifest"))
	static := named("ValidatingWebhookConfiguration", validatingHooks("a.static.k8s.io", validatingHook("a.example.com", hook, func(h *admissionv1.ValidatingWebhook) {
		h.FailurePolicy, h.MatchPolicy, h.NamespaceSelector, h.ObjectSelector, h.TimeoutSeconds = nil, nil, nil, nil, nil
		h.Rules[0].APIGroups, h.Rules[0].Resources, h.Rules[0].Scope = []string{"*"}, []string{"*"}, nil
	})))
	file := staticConfiguration(t, PluginValidatingWebhooks, "WebhookAdmissionConfiguration", static)
	b := newBench(t, func(cfg *EngineConfig) { cfg.ConfigFile = file })
	const denied = `admission webhook "a.example.com" denied the request: by manifest`
	b.refused(http.MethodPost, configMapsPath, configMap("x"), 400, denied)
	b.refused(http.MethodPost, webhooksPath, `{"metadata":{"name":"x"}}`, 400, denied)

	patch := newHookServer(t, patching(`[{"op": "add", "path": "/data/by", "value": "manifest"}]`))
	file = staticConfiguration(t, PluginMutatingWebhooks, "WebhookAdmissionConfiguration",
		named("MutatingWebhookConfiguration", mutatingHooks("a.static.k8s.io", mutatingHook("a.example.com", patch))))
	b = newBench(t, func(cfg *EngineConfig) { cfg.ConfigFile = file })
	if got := b.must(http.MethodPost, configMapsPath, configMap("x")); text(got, "data", "by") != "manifest" {
		t.Errorf("%v", got)
	}
}

// Policies of static manifests are evaluated with those of the API, and alone for policies and bindings.
func TestStaticPolicies(t *testing.T) {
	policy := named("ValidatingAdmissionPolicy", validatingPolicy("p.static.k8s.io", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
		s.FailurePolicy, s.MatchConstraints.MatchPolicy, s.MatchConstraints.NamespaceSelector, s.MatchConstraints.ObjectSelector = nil, nil, nil, nil
		rule := &s.MatchConstraints.ResourceRules[0].RuleWithOperations.Rule
		rule.APIGroups, rule.Resources, rule.Scope = []string{"*"}, []string{"*"}, nil
		s.Validations = []admissionv1.Validation{{Expression: "!object.metadata.name.startsWith('static')", Message: "by manifest"}}
	}))
	binding := named("ValidatingAdmissionPolicyBinding", validatingBinding("b.static.k8s.io", "p.static.k8s.io", nil))
	file := staticConfiguration(t, PluginValidatingPolicies, "ValidatingAdmissionPolicyConfiguration", policy, binding)
	b := newBench(t, func(cfg *EngineConfig) { cfg.ConfigFile = file })
	const denied = `"static" is forbidden: ValidatingAdmissionPolicy 'p.static.k8s.io' with binding 'b.static.k8s.io' denied request: by manifest`
	b.refused(http.MethodPost, configMapsPath, configMap("static"), 422, "configmaps "+denied)
	b.refused(http.MethodPost, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", `{"metadata":{"name":"static"}}`, 422,
		"validatingadmissionpolicies.admissionregistration.k8s.io "+denied)
	b.must(http.MethodPost, configMapsPath, configMap("x"))
}

// Mutating policies of static manifests apply. A changed file is read again.
func TestStaticMutatingPolicies(t *testing.T) {
	labelled := func(by string) string {
		policy := named("MutatingAdmissionPolicy", mutatingPolicy("p.static.k8s.io", applying(`Object{metadata: Object.metadata{labels: Object.metadata.labels{by: "`+by+`"}}}`)))
		return staticConfiguration(t, PluginMutatingPolicies, "MutatingAdmissionPolicyConfiguration", policy,
			named("MutatingAdmissionPolicyBinding", mutatingBinding("b.static.k8s.io", "p.static.k8s.io")))
	}
	file := labelled("manifest")
	b := newBench(t, func(cfg *EngineConfig) { cfg.ConfigFile = file })
	if got := b.must(http.MethodPost, configMapsPath, configMap("x")); text(got, "metadata", "labels", "by") != "manifest" {
		t.Errorf("%v", got)
	}
	if err := os.Rename(filepath.Join(filepath.Dir(labelled("change")), "manifests", "a.yaml"), filepath.Join(filepath.Dir(file), "manifests", "a.yaml")); err != nil {
		t.Fatal(err)
	}
	n := 0
	await.Until(t, "the changed policy applies", func() bool {
		n++
		return text(b.must(http.MethodPost, configMapsPath, configMap(fmt.Sprint("changed-", n))), "metadata", "labels", "by") == "change"
	})
}

// Static manifests that are not valid stop the start.
func TestBadStaticManifests(t *testing.T) {
	hook := newHookServer(t, func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse { return nil })
	service := func(h *admissionv1.ValidatingWebhook) {
		h.ClientConfig = admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "n", Name: "s"}}
	}
	effects := func(h *admissionv1.ValidatingWebhook) { h.SideEffects = nil }
	for want, obj := range map[string]rest.Object{
		`must have a name ending with ".static.k8s.io"`:    named("ValidatingWebhookConfiguration", validatingHooks("a", validatingHook("a.example.com", hook))),
		"clientConfig.service is not supported":            named("ValidatingWebhookConfiguration", validatingHooks("a.static.k8s.io", validatingHook("a.example.com", hook, service))),
		`webhook "a.example.com": sideEffects is required`: named("ValidatingWebhookConfiguration", validatingHooks("a.static.k8s.io", validatingHook("a.example.com", hook, effects))),
		"*v1.MutatingWebhookConfiguration":                 named("MutatingWebhookConfiguration", mutatingHooks("a.static.k8s.io", mutatingHook("a.example.com", hook))),
	} {
		file := staticConfiguration(t, PluginValidatingWebhooks, "WebhookAdmissionConfiguration", obj)
		if _, err := NewEngine(EngineConfig{Transport: http.DefaultTransport, ConfigFile: file}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
