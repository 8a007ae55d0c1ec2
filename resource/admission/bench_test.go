package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// bench is an API server with an Engine that reads its configurations from the server.
type bench struct {
	*httptest.Server
	t         testing.TB
	engine    *Engine
	resources map[string]*rest.Resource

	mu       sync.Mutex
	warnings []string
	requests []string // method and path of the engine's requests
	// away makes every response 503; allowed is the result of access reviews.
	away, allowed bool
	// audited is the audit context of the last request.
	audited *audit.AuditContext
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionv1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// benchKinds are the kinds of the server, without strategies.
func benchKinds() []*rest.Kind {
	scheme := newScheme()
	typed := func(gv schema.GroupVersion, plural, kind string, namespaced bool) *rest.Kind {
		return &rest.Kind{
			Info: resource.Info{Group: gv.Group, Versions: []string{gv.Version}, Resource: plural, Kind: kind, Namespaced: namespaced,
				Path: gv.Group + "/" + plural},
			Codec: rest.Typed(scheme, gv.WithKind(kind)),
		}
	}
	all := []*rest.Kind{
		typed(corev1.SchemeGroupVersion, "namespaces", "Namespace", false),
		typed(corev1.SchemeGroupVersion, "configmaps", "ConfigMap", true),
		typed(corev1.SchemeGroupVersion, "services", "Service", true),
		typed(discoveryv1.SchemeGroupVersion, "endpointslices", "EndpointSlice", true),
		widgets(),
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"} {
		all = append(all, typed(admissionv1.SchemeGroupVersion, strings.ToLower(kind)+"s", kind, false))
	}
	return append(all, typed(admissionv1.SchemeGroupVersion, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", false),
		typed(admissionv1.SchemeGroupVersion, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false))
}

func newBench(t testing.TB, configure ...func(*EngineConfig)) *bench {
	t.Helper()
	b := &bench{t: t, resources: map[string]*rest.Resource{}}
	storage := memstore.New()
	list := []*rest.Resource{}
	for _, k := range benchKinds() {
		r := &rest.Resource{Kind: k, Store: storage.Store(&k.Info)}
		b.resources[k.Resource], list = r, append(list, r)
	}
	b.Server = httptest.NewUnstartedServer(nil)
	cfg := EngineConfig{BaseURL: "http://" + b.Listener.Addr().String(), Transport: b.transport(), Warn: b.warn, Logger: quiet(), FirstRead: 20 * time.Second}
	for _, c := range configure {
		c(&cfg)
	}
	var err error
	if b.engine, err = NewEngine(cfg); err != nil {
		t.Fatal(err)
	}
	b.Config.Handler = b.handler(handlers.New(handlers.Config{Resources: list, Admission: Timed(b.engine), Warn: b.warn, Logger: quiet()}))
	b.Start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("run: %v", err)
		}
		b.CloseClientConnections()
		b.Close()
	})
	b.store(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"team": "red"}}})
	b.store(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	return b
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// transport records the engine's requests.
func (b *bench) transport() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		b.mu.Lock()
		b.requests = append(b.requests, r.Method+" "+r.URL.Path)
		b.mu.Unlock()
		return http.DefaultTransport.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (b *bench) warn(_ context.Context, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.warnings = append(b.warnings, text)
}

// warned returns the warnings since the last call.
func (b *bench) warned() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.warnings
	b.warnings = nil
	return out
}

func (b *bench) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// handler serves the API, discovery of two groups and access reviews.
func (b *bench) handler(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		away, allowed := b.away, b.allowed
		b.mu.Unlock()
		reply := func(v any) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
		switch {
		case away:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case r.URL.Path == "/api":
			reply(metav1.APIVersions{Versions: []string{"v1"}})
			return
		case r.URL.Path == "/apis":
			reply(metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: widgetGroup,
				Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: widgetGroup + "/v1", Version: "v1"}}}}})
			return
		case r.URL.Path == "/api/v1":
			reply(metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "configmaps/x", Kind: "ConfigMap"}, {Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}})
			return
		case r.URL.Path == "/apis/example.com/v1":
			reply(metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Namespaced: true}}})
			return
		case r.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			reply(map[string]any{"status": map[string]any{"allowed": allowed}})
			return
		}
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "alice", UID: "u-7", Groups: []string{"people"}, Extra: map[string][]string{"scope": {"a"}}}
		ctx := audit.WithAuditContext(resource.WithAction(r.Context(), act))
		audited := audit.AuditContextFrom(ctx)
		if err := audited.Init(audit.RequestAuditConfig{Level: auditapi.LevelRequest}, nil); err != nil {
			b.t.Error(err)
		}
		b.set(func() { b.audited = audited })
		api.ServeHTTP(w, r.WithContext(ctx))
	})
}

// resourceOf returns the resource of a Go type.
func (b *bench) resourceOf(obj rest.Object) *rest.Resource {
	b.t.Helper()
	for _, r := range b.resources {
		if reflect.TypeOf(r.Codec.StrategicMerge(r.GVK("v1"))) == reflect.TypeOf(obj) {
			return r
		}
	}
	b.t.Fatalf("no resource for %T", obj)
	return nil
}

// store stores an object without admission.
func (b *bench) store(obj rest.Object) {
	b.t.Helper()
	r := b.resourceOf(obj)
	o, err := r.Codec.EncodeStored(obj)
	if err == nil {
		_, err = r.Store.Update(context.Background(), o.Key(), func(*resource.Object) (resource.Mutation, error) {
			return resource.Mutation{Object: o}, nil
		})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// configure stores configurations and waits until they apply.
func (b *bench) configure(objects ...rest.Object) {
	b.t.Helper()
	for _, obj := range objects {
		b.store(obj)
	}
	await.Until(b.t, "the engine knows its configurations", b.current)
}

// unconfigure removes configurations and waits until they no longer apply.
func (b *bench) unconfigure(objects ...rest.Object) {
	b.t.Helper()
	for _, obj := range objects {
		if _, err := b.resourceOf(obj).Store.Delete(context.Background(), resource.Key{Name: obj.GetName()}, nil); err != nil {
			b.t.Fatal(err)
		}
	}
	await.Until(b.t, "the engine knows its configurations", b.current)
}

// current reports whether the engine applies exactly the stored configurations. Every policy
// of these tests has a binding.
func (b *bench) current() bool {
	e := b.engine
	if e.Ready() != nil {
		return false
	}
	applied, stored := map[string]bool{}, map[string]bool{}
	apply := func(obj rest.Object) { applied[obj.GetName()+"@"+obj.GetResourceVersion()] = true }
	for _, obj := range append(e.mutatingWebhooks.informer.GetIndexer().List(), e.validatingWebhooks.informer.GetIndexer().List()...) {
		apply(obj.(rest.Object))
	}
	for _, h := range e.mutatingPolicies.source.Hooks() {
		apply(h.Policy)
		for _, binding := range h.Bindings {
			apply(binding)
		}
	}
	for _, h := range e.validatingPolicies.source.Hooks() {
		apply(h.Policy)
		for _, binding := range h.Bindings {
			apply(binding)
		}
	}
	for plural := range e.configurations {
		list, err := b.resources[plural].Store.List(context.Background(), resource.ListOptions{})
		if err != nil {
			b.t.Fatal(err)
		}
		for _, o := range list.Items {
			stored[fmt.Sprintf("%s@%d", o.Name, o.Revision)] = true
		}
	}
	return maps.Equal(applied, stored)
}
