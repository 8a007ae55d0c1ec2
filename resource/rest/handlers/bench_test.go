package handlers

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// Paths and media types of requests.
const (
	inDefault   = "/api/v1/namespaces/default/"
	configMaps  = inDefault + "configmaps"
	configMapA  = configMaps + "/a"
	serviceS    = inDefault + "services/s"
	widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"
	widgetW     = widgetsPath + "/w"
	scaleW      = widgetW + "/scale"

	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
	tableAccept    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
)

// bench is an API over a store in memory behind an HTTP server: config maps without special
// behaviour, secrets with columns and stored as JSON, services with a generation, a status,
// create on update and an allocator, namespaces with finalizers of their own, and widgets,
// a kind without Go types in two versions.
type bench struct {
	*httptest.Server
	t       testing.TB
	api     *API
	storage *memstore.Storage

	configMaps, secrets, services, namespaces *rest.Resource
	widgets                                   map[string]*rest.Resource // by version

	mu       sync.Mutex
	warnings []string
	claimed  int // allocations of services that are not released
}

func newBench(t testing.TB, configure ...func(*Config, *bench)) *bench {
	t.Helper()
	b := &bench{t: t, storage: memstore.New(), widgets: map[string]*rest.Resource{}}
	serve := func(k *rest.Kind) *rest.Resource {
		return &rest.Resource{Kind: k, Store: b.storage.Store(&k.Info)}
	}
	b.configMaps, b.secrets = serve(resttest.ConfigMaps()), serve(resttest.Secrets())
	b.services, b.namespaces = serve(b.serviceKind()), serve(namespaceKind())
	b.configMaps.UnconditionalUpdate = true
	for _, version := range []string{"v1", "v1beta1"} {
		b.widgets[version] = serve(widgetKind(version))
	}
	cfg := Config{
		Logger:    slog.New(slog.DiscardHandler),
		Resources: []*rest.Resource{b.configMaps, b.secrets, b.services, b.namespaces},
		Warn: func(_ context.Context, text string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.warnings = append(b.warnings, text)
		},
	}
	for _, c := range configure {
		c(&cfg, b)
	}
	builtins := lookupIn(cfg.Resources)
	cfg.Lookup = func(a *resource.Action) (*rest.Resource, error) {
		if a.Resource == "widgets" {
			return b.widgets[a.Version], nil
		}
		return builtins(a)
	}
	b.api = New(cfg)
	b.Server = httptest.NewServer(asUser(b.api, &resource.User{Name: "alice"}))
	// Tests of compression request it themselves.
	b.Client().Transport.(*http.Transport).DisableCompression = true
	t.Cleanup(b.Close)
	return b
}

// asUser serves requests of a user with an API.
func asUser(api *API, user *resource.User) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = user
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}
}

// builtinOwners returns the types of core/v1, as the core server does.
var builtinOwners = sync.OnceValues(func() (managedfields.TypeConverter, error) {
	return applyconfigurations.NewTypeConverter(resttest.CoreScheme()), nil
})

// newTrackedBench is newBench with field ownership of config maps, services and namespaces.
func newTrackedBench(t testing.TB, configure ...func(*Config, *bench)) *bench {
	t.Helper()
	return newBench(t, append([]func(*Config, *bench){func(_ *Config, b *bench) {
		for _, res := range []*rest.Resource{b.configMaps, b.services, b.namespaces} {
			res.Ownership = builtinOwners
		}
	}}, configure...)...)
}

func (b *bench) serviceKind() *rest.Kind {
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

// put stores an object without the API and returns it.
func (b *bench) put(res *rest.Resource, obj rest.Object) *resource.Object {
	b.t.Helper()
	return b.putObject(res, resttest.Stored(b.t, res.Kind, obj, 0))
}

// putBad stores the config map b with data that cannot be decoded.
func (b *bench) putBad() {
	b.t.Helper()
	o, err := resource.Parse([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","namespace":"default","finalizers":["x/y"]},"data":[]}`))
	if err != nil {
		b.t.Fatal(err)
	}
	b.putObject(b.configMaps, o)
}

func (b *bench) putObject(res *rest.Resource, o *resource.Object) *resource.Object {
	b.t.Helper()
	o, err := res.Store.Update(b.t.Context(), o.Key(), func(*resource.Object) (resource.Mutation, error) {
		return resource.Mutation{Object: o}, nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// modify changes the config map a without the API and returns it.
func (b *bench) modify(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	b.t.Helper()
	cm, err := rest.Modify(b.t.Context(), b.configMaps, resource.Key{Namespace: "default", Name: "a"}, func(cm *corev1.ConfigMap) error {
		change(cm)
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return cm
}

// remove deletes an object in the namespace default without the API.
func (b *bench) remove(res *rest.Resource, name string) {
	b.t.Helper()
	if _, err := res.Store.Delete(b.t.Context(), resource.Key{Namespace: "default", Name: name}, nil); err != nil {
		b.t.Fatal(err)
	}
}

// bare returns a config map as a client sends it.
func bare(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "v"}}
}

// send sends a body: nil, a string, or an object that becomes JSON. headers are name, value
// pairs. The default Content-Type is JSON.
func (b *bench) send(method, path string, body any, headers ...string) answer {
	b.t.Helper()
	data, _ := body.(string)
	if obj, ok := body.(runtime.Object); ok {
		encoded, err := json.Marshal(obj)
		if err != nil {
			b.t.Fatal(err)
		}
		data = string(encoded)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+path, strings.NewReader(data))
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
	return answer{Response: resp, t: b.t, code: resp.StatusCode, body: read}
}

// do sends a request without a body.
func (b *bench) do(method, path string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	a := b.send(method, path, nil, headers...)
	return a.Response, string(a.body)
}

// create posts a config map and returns it as stored.
func (b *bench) create(cm *corev1.ConfigMap) *corev1.ConfigMap {
	b.t.Helper()
	return b.send("POST", configMaps, cm).want(201, "").configMap()
}

// widget posts the widget w by the manager "creator".
func (b *bench) widget(spec string) answer {
	b.t.Helper()
	return b.send("POST", widgetsPath+"?fieldManager=creator", `{"metadata":{"name":"w"},"spec":`+spec+`}`).want(201, "")
}

// patch sends a patch by a manager.
func (b *bench) patch(path, patchType, manager, patch string) answer {
	b.t.Helper()
	return b.send("PATCH", withQuery(path, "fieldManager="+manager), patch, "Content-Type", patchType)
}

// merge sends a merge patch.
func (b *bench) merge(path, patch string) answer {
	b.t.Helper()
	return b.send("PATCH", path, patch, "Content-Type", mergePatch)
}

// apply sends an apply patch by a manager.
func (b *bench) apply(path, manager, intent string) answer {
	b.t.Helper()
	return b.patch(path, applyPatch, manager, intent)
}

// withQuery appends a parameter to a path that may have others.
func withQuery(path, parameter string) string {
	if strings.Contains(path, "?") {
		return path + "&" + parameter
	}
	return path + "?" + parameter
}

// takeWarnings returns the warnings since the last call.
func (b *bench) takeWarnings() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Join(b.warnings, "\n")
	b.warnings = nil
	return all
}

// admission has functions for both phases of admission; nil: everything is admitted.
type admission struct{ mutate, validate func(*rest.Attributes) error }

func (a admission) Mutate(_ context.Context, attrs *rest.Attributes) error {
	if a.mutate == nil {
		return nil
	}
	return a.mutate(attrs)
}

func (a admission) Validate(_ context.Context, attrs *rest.Attributes) error {
	if a.validate == nil {
		return nil
	}
	return a.validate(attrs)
}

// refusingStore is a store that rejects some objects.
type refusingStore struct {
	resource.Store
	refuse func(*resource.Object) error
}

func (s refusingStore) Create(ctx context.Context, key resource.Key, o *resource.Object, ttl time.Duration) (*resource.Object, error) {
	if err := s.refuse(o); err != nil {
		return nil, err
	}
	return s.Store.Create(ctx, key, o, ttl)
}

func (s refusingStore) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	return s.Store.Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		m, err := mutate(cur)
		if err == nil && m.Object != nil {
			err = s.refuse(m.Object)
		}
		return m, err
	})
}

// race makes the next update of a resource lose a race with a change of the object.
func (b *bench) race(res *rest.Resource, change func(obj rest.Object)) {
	res.Store = &racingStore{Store: res.Store, kind: res.Kind, change: change}
}

type racingStore struct {
	resource.Store
	kind   *rest.Kind
	change func(obj rest.Object)
	done   bool
}

func (s *racingStore) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	return s.Store.Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		if s.done {
			return mutate(cur)
		}
		s.done = true
		if _, err := mutate(cur); err != nil {
			return resource.Mutation{}, err
		}
		obj, err := s.kind.Decode(cur)
		if err != nil {
			return resource.Mutation{}, err
		}
		s.change(obj)
		o, err := s.kind.Codec.EncodeStored(obj)
		if err != nil {
			return resource.Mutation{}, err
		}
		return mutate(o.WithRevision(cur.Revision + 1))
	})
}
