package admission

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/klog/v2"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/rest"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(quiet())
	generic.SetPolicyRefreshIntervalForTests(10 * time.Millisecond)
	os.Exit(m.Run())
}

func create(k *rest.Kind) *rest.Attributes {
	obj := k.Codec.StrategicMerge(k.GVK("v1"))
	return &rest.Attributes{Action: &resource.Action{Version: "v1"}, Kind: k, Operation: rest.Create, Key: resource.Key{Namespace: "default", Name: "x"}, Object: obj}
}

func benchKind(plural string) *rest.Kind {
	for _, k := range benchKinds() {
		if k.Resource == plural {
			return k
		}
	}
	return nil
}

// Before configurations were read, a write waits for FirstRead and is rejected with 503 and
// Retry-After.
func TestUnknownConfigurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		e, err := NewEngine(EngineConfig{BaseURL: "https://gateway", Transport: transport, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		for name, ask := range map[string]func(context.Context, *rest.Attributes) error{"mutate": e.Mutate, "validate": e.Validate} {
			begun := time.Now()
			status := resource.AsStatus(ask(t.Context(), create(benchKind("configmaps"))))
			if status.Code != 503 || status.Message != "admission webhooks and policies are not known yet" || status.Details.RetryAfterSeconds != 1 {
				t.Errorf("%s: %+v", name, status)
			}
			if took := time.Since(begun); took != DefaultFirstRead {
				t.Errorf("%s took %s", name, took)
			}
		}
		if e.Ready() == nil {
			t.Error("ready")
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("run: %v", err)
		}
	})
}

// The last known configurations apply while the API cannot be reached.
func TestLastKnown(t *testing.T) {
	b, hook := newBench(t), newHookServer(t, deny("still here"))
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook)))
	b.set(func() { b.away = true })
	b.CloseClientConnections()
	err := b.engine.Validate(t.Context(), create(b.resources["configmaps"].Kind))
	if status := resource.AsStatus(err); status.Message != `admission webhook "a.example.com" denied the request: still here` {
		t.Errorf("%+v", status)
	}
	b.set(func() { b.away = false })
	b.unconfigure(validatingHooks("hooks"))
	if err := b.engine.Validate(t.Context(), create(b.resources["configmaps"].Kind)); err != nil {
		t.Error(err)
	}
}

// Without configurations the engine reads only their six kinds.
func TestIdle(t *testing.T) {
	b := newBench(t)
	await.Until(b.t, "configurations are known", func() bool { return b.engine.Ready() == nil })
	b.must(http.MethodPost, configMapsPath, configMap("x"))
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if !strings.HasPrefix(r, "GET /apis/admissionregistration.k8s.io/v1/") {
			t.Errorf("asked for %s", r)
		}
	}
	if len(b.requests) != 6 {
		t.Errorf("%d requests: %q", len(b.requests), b.requests)
	}
}

// Webhooks and policies do not apply to reviews.
func TestReviewsAreExempt(t *testing.T) {
	e, err := NewEngine(EngineConfig{Transport: http.DefaultTransport})
	if err != nil {
		t.Fatal(err)
	}
	a := create(&rest.Kind{Info: resource.Info{Versions: []string{"v1"}, Resource: "reviews"}, Codec: widgetCodec{}})
	a.Kind.Review = func(ctx context.Context, obj runtime.Object) (runtime.Object, error) { return obj, nil }
	if err := errors.Join(e.Mutate(t.Context(), a), e.Validate(t.Context(), a)); err != nil {
		t.Error(err)
	}
}

// A webhook with a Service is called at the ready endpoints of its slices; while they cannot
// be read, at the last ones.
func TestServiceOfWebhook(t *testing.T) {
	b, hook := newBench(t), newHookServer(t, func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
		return &admissionreview.AdmissionResponse{Allowed: true}
	})
	host, port := hostPort(t, hook.URL)
	b.store(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hooks", Namespace: "default"}, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "hooks-1", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "hooks"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}},
	}
	b.store(slice)
	r := b.engine.services
	for name, want := range map[string]string{"other": `services "other" not found`, "hooks": `no endpoints available for service "default/hooks"`} {
		if _, err := r.ResolveEndpoint("default", name, 443); err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.ResolveEndpoint("default", "hooks", 80); err == nil || err.Error() != `no service port 80 found for service "default/hooks"` {
		t.Error(err)
	}
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{host}})
	b.store(slice)
	clear(r.found)
	u, err := r.ResolveEndpoint("default", "hooks", 443)
	if err != nil || u.String() != hook.URL {
		t.Fatalf("%v, %v", u, err)
	}
	b.set(func() { b.away = true })
	r.mu.Lock()
	for k, e := range r.found {
		r.found[k] = endpoints{urls: e.urls}
	}
	r.mu.Unlock()
	if u, err := r.ResolveEndpoint("default", "hooks", 443); err != nil || u.String() != hook.URL {
		t.Errorf("while away: %v, %v", u, err)
	}
	b.set(func() { b.away = false })
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook, func(h *admissionv1.ValidatingWebhook) {
		h.ClientConfig.URL, h.ClientConfig.Service = nil, &admissionv1.ServiceReference{Namespace: "default", Name: "hooks"}
	})))
	// The certificate is for another name: the connection was made.
	_, status := b.do(http.MethodPost, configMapsPath, configMap("x"))
	if status == nil || !strings.Contains(status.Message, "not hooks.default.svc") {
		t.Errorf("%+v", status)
	}
}

func hostPort(t *testing.T, raw string) (string, int32) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname(), int32(port)
}

// Only the named plugins of an engine are called, and those in front of it again after a change.
func TestOnly(t *testing.T) {
	b := newBench(t)
	hook := newHookServer(t, patching(`[{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]`))
	b.configure(mutatingHooks("hooks", mutatingHook("a.example.com", hook)))
	for _, tc := range []struct {
		name string
		want int
	}{{PluginMutatingWebhooks, 1}, {PluginMutatingPolicies, 0}} {
		again, hold := 0, errors.New("held")
		err := b.engine.Only([]string{tc.name}, func(context.Context, *rest.Attributes) error { again++; return hold }).Mutate(t.Context(), create(benchKind("configmaps")))
		if asked := len(hook.asked()); asked != tc.want || again != tc.want || (err != nil) != (tc.want == 1) {
			t.Errorf("%s: asked %d times, again %d times, %v", tc.name, asked, again, err)
		}
	}
}
