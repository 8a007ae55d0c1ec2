package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// writeBench is an API for writes: config maps without special behaviour, services with a
// generation, a status, create on update and an allocator, and namespaces with finalizers of
// their own.
type writeBench struct {
	*httptest.Server
	t          testing.TB
	api        *API
	configMaps *rest.Resource
	services   *rest.Resource
	namespaces *rest.Resource

	mu       sync.Mutex
	warnings []string
	// claimed counts the allocations of services that are not released.
	claimed int
}

func newWriteBench(t testing.TB, configure ...func(*Config, *writeBench)) *writeBench {
	t.Helper()
	storage := memstore.New()
	b := &writeBench{t: t}
	serve := func(k *rest.Kind) *rest.Resource { return &rest.Resource{Kind: k, Store: storage.Store(&k.Info)} }
	cm := resttest.ConfigMaps()
	cm.UnconditionalUpdate = true
	b.configMaps, b.services, b.namespaces = serve(cm), serve(b.serviceKind()), serve(namespaceKind())
	cfg := Config{
		Resources: []*rest.Resource{b.configMaps, b.services, b.namespaces},
		Warn: func(_ context.Context, text string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.warnings = append(b.warnings, text)
		},
	}
	for _, c := range configure {
		c(&cfg, b)
	}
	b.api = New(cfg)
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "alice"}
		b.api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *writeBench) serviceKind() *rest.Kind {
	status := &rest.Strategy{Resets: []string{"metadata", "spec"}, PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
		next := obj.(*corev1.Service).Status
		*obj.(*corev1.Service) = *old.(*corev1.Service).DeepCopy()
		obj.(*corev1.Service).Status = next
	}}
	return &rest.Kind{
		Info:           resource.Info{Versions: []string{"v1"}, Resource: "services", Kind: "Service", Namespaced: true},
		Codec:          rest.Typed(resttest.CoreScheme(), corev1.SchemeGroupVersion.WithKind("Service")),
		CreateOnUpdate: true,
		Strategy: rest.Strategy{
			TrackGeneration: true,
			PrepareCreate:   func(_ context.Context, obj rest.Object) { obj.(*corev1.Service).Status = corev1.ServiceStatus{} },
			PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
				obj.(*corev1.Service).Status = old.(*corev1.Service).Status
			},
			Allocate: func(_ context.Context, _, old rest.Object, dryRun bool) (func(), error) {
				if old != nil || dryRun {
					return nil, nil
				}
				b.claimed++
				return func() { b.claimed-- }, nil
			},
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: status}},
	}
}

func namespaceKind() *rest.Kind {
	finalize := &rest.Strategy{PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
		next := obj.(*corev1.Namespace).Spec.Finalizers
		*obj.(*corev1.Namespace) = *old.(*corev1.Namespace).DeepCopy()
		obj.(*corev1.Namespace).Spec.Finalizers = next
	}}
	return &rest.Kind{
		Info:          resource.Info{Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace"},
		Codec:         rest.Typed(resttest.CoreScheme(), corev1.SchemeGroupVersion.WithKind("Namespace")),
		ReturnDeleted: true,
		Strategy: rest.Strategy{
			BeginDelete: func(obj rest.Object) { obj.(*corev1.Namespace).Status.Phase = corev1.NamespaceTerminating },
			Holds:       func(obj rest.Object) bool { return len(obj.(*corev1.Namespace).Spec.Finalizers) > 0 },
		},
		Subresources: []rest.Subresource{{Name: "finalize", Verbs: []string{"update"}, Strategy: finalize}},
	}
}

// answer is a response with its body.
type answer struct {
	t    testing.TB
	code int
	body []byte
}

// send sends a body (a string, or an object that becomes JSON); headers are
// name, value pairs. JSON is the default Content-Type.
func (b *writeBench) send(method, path string, body any, headers ...string) answer {
	b.t.Helper()
	data, isText := body.(string)
	if obj, ok := body.(runtime.Object); ok {
		encoded, err := json.Marshal(obj)
		if err != nil {
			b.t.Fatal(err)
		}
		data, isText = string(encoded), true
	}
	if body != nil && !isText {
		b.t.Fatalf("body is a %T", body)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+path, bytes.NewReader([]byte(data)))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.Client().Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{t: b.t, code: resp.StatusCode, body: read}
}

// want checks the status code and, unless empty, the Status message.
func (a answer) want(code int, message string) answer {
	a.t.Helper()
	if a.code != code {
		a.t.Fatalf("code %d, want %d: %s", a.code, code, a.body)
	}
	if message == "" {
		return a
	}
	if got := a.status().Message; got != message {
		a.t.Fatalf("message %q, want %q", got, message)
	}
	return a
}

func (a answer) status() *metav1.Status { return read(a, &metav1.Status{}) }

func (a answer) configMap() *corev1.ConfigMap { return read(a, &corev1.ConfigMap{}) }

func (a answer) service() *corev1.Service { return read(a, &corev1.Service{}) }

func (a answer) namespace() *corev1.Namespace { return read(a, &corev1.Namespace{}) }

func read[T any](a answer, into T) T {
	a.t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
	return into
}

// create posts a config map and returns it as stored.
func (b *writeBench) create(cm *corev1.ConfigMap) *corev1.ConfigMap {
	b.t.Helper()
	return b.send("POST", inDefault+"configmaps", cm).want(201, "").configMap()
}

// bare returns a config map as a client sends it.
func bare(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "v"}}
}

// takeWarnings returns the warnings since the last call.
func (b *writeBench) takeWarnings() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Join(b.warnings, "\n")
	b.warnings = nil
	return all
}
