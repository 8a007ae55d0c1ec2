package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/serve/metrics"
)

// running returns a running CRD server over memory without a listener; it knows the namespaces
// "default" and "going".
func running(t testing.TB) *Server {
	t.Helper()
	return over(t, memstore.New())
}

// over is running over a given storage.
func over(t testing.TB, kept *memstore.Storage) *Server {
	t.Helper()
	s := fed(t, kept, kept.Feed())
	await.Until(t, "everything was read", s.cache.Ready)
	return s
}

// put stores an object, as another server may have written it.
func put(t testing.TB, store resource.Store, text string) {
	t.Helper()
	o, err := resource.Parse([]byte(text))
	if err == nil {
		_, err = store.Create(t.Context(), o.Key(), o, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start runs parts of a server until the test ends.
func start(t testing.TB, parts ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, len(parts))
	for _, run := range parts {
		go func() { done <- run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range parts {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("a part ended with %v", err)
			}
		}
	})
}

func namespaceInfo() *resource.Info {
	return &resource.Info{Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace", Path: "namespaces"}
}

// namespaceStates returns states of the namespaces default, and going, which is being deleted.
func namespaceStates(t testing.TB) *admission.NamespaceStates {
	t.Helper()
	store := memstore.New().Store(namespaceInfo())
	for name, more := range map[string]string{"default": "", "going": `,"deletionTimestamp":"2026-01-01T00:00:00Z"`} {
		put(t, store, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"`+more+`}}`)
	}
	n := admission.NewNamespaceStates(store, slog.New(slog.DiscardHandler))
	start(t, n.Run)
	await.Until(t, "namespaces are known", func() bool { return n.Ready() == nil })
	return n
}

// fed is over with a given feed, and does not wait for the cache.
func fed(t testing.TB, kept *memstore.Storage, feed resource.Feed) *Server {
	t.Helper()
	s := &Server{log: slog.New(slog.DiscardHandler), metrics: metrics.New(), namespaces: namespaceStates(t)}
	serveFrom(t, s, kept, feed)
	return s
}

// serveFrom runs a server over a storage and a feed until the test ends, and waits for the definitions.
func serveFrom(t testing.TB, s *Server, kept *memstore.Storage, feed resource.Feed) {
	t.Helper()
	s.authorize = func(context.Context, *resource.Action) error { return nil }
	if err := s.assemble(kept, feed); err != nil {
		t.Fatal(err)
	}
	start(t, s.cache.Run, s.follow, s.established.run, func(ctx context.Context) error { s.finalizer.run(ctx); return ctx.Err() })
	await.Until(t, "the definitions were read", s.complete)
}

// answer is the response to a request.
type answer struct {
	code int
	body []byte
}

func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(a.body, &out); err != nil {
		t.Fatalf("%d %s: %v", a.code, a.body, err)
	}
	return out
}

func (a answer) status(t testing.TB) *metav1.Status {
	t.Helper()
	out := &metav1.Status{}
	if err := json.Unmarshal(a.body, out); err != nil || out.Kind != "Status" {
		t.Fatalf("%d %s is no Status (%v)", a.code, a.body, err)
	}
	return out
}

// asAdmin serves requests of an administrator.
func (s *Server) asAdmin(w http.ResponseWriter, r *http.Request) {
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}
	s.resources().ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
}

// send sends a request as an administrator. The body is YAML or JSON text.
func (s *Server) send(t testing.TB, method, path, contentType, body string, header ...string) answer {
	t.Helper()
	data := []byte(body)
	if contentType == "" && body != "" {
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			t.Fatal(err)
		}
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(data))
	r.Header.Set("Content-Type", contentType)
	if contentType == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("User-Agent", "tester/1.0")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.asAdmin(w, r)
	return answer{w.Code, w.Body.Bytes()}
}

// must is send for a request that has to succeed.
func (s *Server) must(t testing.TB, method, path, contentType, body string, header ...string) map[string]any {
	t.Helper()
	a := s.send(t, method, path, contentType, body, header...)
	if a.code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, a.code, a.body)
	}
	return a.object(t)
}

// install creates a definition and waits until it is served.
func (s *Server) install(t testing.TB, text string) map[string]any {
	t.Helper()
	out := s.must(t, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", text)
	name, _ := at(out, "metadata", "name").(string)
	plural, group, _ := strings.Cut(name, ".")
	await.Until(t, name+" is served", func() bool {
		now := s.served.Load()
		for gr := range now.byGR {
			if gr.Group == group && gr.Resource == plural {
				return true
			}
		}
		return false
	})
	await.Until(t, name+" is not waiting to be established", func() bool {
		out = s.must(t, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name, "", "")
		return condition(out, "Established")["reason"] != reasonInstalling
	})
	return out
}

// at returns a nested value; nil where there is none.
func at(object any, path ...string) any {
	for _, name := range path {
		m, ok := object.(map[string]any)
		if !ok {
			return nil
		}
		object = m[name]
	}
	return object
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas, priority: 1}
    selectableFields: [{jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            x-kubernetes-validations:
            - {rule: "self.size != 'huge' || self.replicas == 1", message: "huge widgets stand alone"}
            properties:
              size: {type: string, enum: [small, large, huge]}
              replicas: {type: integer, default: 1, minimum: 0}
              color: {type: string}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [port]
                items: {type: object, required: [port], properties: {port: {type: integer}, name: {type: string}}}
          status: {type: object, properties: {replicas: {type: integer}, phase: {type: string}}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: string}, replicas: {type: integer, default: 2}}}
`

const widgetPath = "/apis/example.com/v1/namespaces/default/widgets"

func widget(name, spec string) string {
	return "{apiVersion: example.com/v1, kind: Widget, metadata: {name: " + name + "}, spec: " + spec + "}"
}
