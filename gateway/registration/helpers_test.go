package registration

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/sources"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

// findings are those of a Controller, with the conditions of a test.
type findings struct {
	*routing.Controller
	known map[string]apiservice.Condition
	// partly, if not nil, are the BackendStates instead.
	partly *routing.BackendStates
	// outdated makes the verdicts on all servers those of earlier checks.
	outdated bool
}

func (f *findings) Current(srv *routing.Server) bool {
	return !f.outdated && f.Controller.Current(srv)
}

func (f *findings) Conditions() map[string]apiservice.Condition { return f.known }

func (f *findings) BackendStates() *routing.BackendStates {
	if f.partly != nil {
		return f.partly
	}
	return f.Controller.BackendStates()
}

// registry is a Writer over storage in memory.
type registry struct {
	*registrar
	findings *findings
	writer   *statusWriter
	counts   *prometheus.Registry
	storage  *memstore.Storage
}

// newRegistry starts with the gateway's own registration and RBAC groups and a static Backend
// "crd" that serves the given group/versions (nil: they were never read).
func newRegistry(t *testing.T, served []discovery.GroupVersion) *registry {
	t.Helper()
	storage := memstore.New()
	stored := func(kind func() (*rest.Kind, error)) *rest.Resource {
		k, err := kind()
		if err != nil {
			t.Fatal(err)
		}
		return &rest.Resource{Kind: k, Store: storage.Store(&k.Info)}
	}
	g := &registry{storage: storage, counts: prometheus.NewRegistry(), findings: &findings{}}
	w := New(Config{
		Findings: g.findings, APIServices: stored(apiservice.Kind), Backends: stored(backend.Kind), Observer: "me",
		Own:    []discovery.GroupVersion{{Group: apiservice.Group, Version: "v1"}, {Group: "rbac.authorization.k8s.io", Version: "v1"}},
		Broken: func(srv *routing.Server) []openapi.Broken { return srv.Source.Broken() }, Registry: g.counts, Logger: slog.New(slog.DiscardHandler),
	})
	w.Elect(t.Context())
	g.registrar, g.writer = w.registrar, w.status
	g.startsWith(t, onSocket(t, "crd", "/absent/crd"))
	g.serves("crd", served)
	return g
}

// onSocket is a Backend that a gateway starts with.
func onSocket(t testing.TB, name, path string) *routing.StaticBackend {
	t.Helper()
	c, err := routing.NewStaticBackend(routing.Backend{Name: name, URLs: []string{"unix://" + path}}, upstream.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// startsWith restarts the gateway with these static Backends.
func (g *registry) startsWith(t *testing.T, start ...*routing.StaticBackend) {
	t.Helper()
	g.static = start
	g.findings.Controller = routing.New(routing.Config{Own: g.own, StaticBackends: start, Logger: g.log})
	g.findings.SetAPIServices([]*apireg.APIService{})
	g.findings.SetBackends([]*backend.Backend{})
	g.findings.Reconcile()
}

// state returns the state of a Backend.
func (g *registry) state(name string) *routing.BackendState {
	return g.findings.Controller.BackendStates().ByName[name]
}

// serves sets what the server of a Backend serves (nil: it was never read). The server is never
// connected to.
func (g *registry) serves(name string, gvs []discovery.GroupVersion) {
	g.state(name).Server.Source = sources.NewSource(sources.Config{Previous: gvs})
}

// verdict sets the verdict on an endpoint of a Backend.
func (g *registry) verdict(name, url string, err error) {
	g.state(name).Server.Up.SetVerdict(url, availability.Verdict{Known: true, Healthy: err == nil, Err: err, Since: time.Now()})
}

// add stores a Backend for a server of the given group/versions.
func (g *registry) add(t *testing.T, name string, auto *backend.AutoRegister, gvs []discovery.GroupVersion, urls ...string) {
	t.Helper()
	spec := backend.Spec{AutoRegister: auto}
	if urls == nil {
		urls = []string{"https://" + name}
	}
	for _, url := range urls {
		spec.Endpoints = append(spec.Endpoints, backend.Endpoint{URL: url})
	}
	g.addBackend(t, name, spec)
	g.serves(name, gvs)
}

func (g *registry) addBackend(t *testing.T, name string, spec backend.Spec) {
	t.Helper()
	if _, err := rest.CreateObject(t.Context(), g.backends, &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	g.readBackends(t)
}

// drop deletes a stored Backend.
func (g *registry) drop(t *testing.T, name string) {
	t.Helper()
	if _, err := g.backends.Store.Delete(t.Context(), resource.Key{Name: name}, nil); err != nil {
		t.Fatal(err)
	}
}

// modify changes a stored object.
func modify[T rest.Object](t *testing.T, r *rest.Resource, name string, change func(T)) {
	t.Helper()
	if _, err := rest.Modify(t.Context(), r, resource.Key{Name: name}, func(obj T) error { change(obj); return nil }); err != nil {
		t.Fatal(err)
	}
}

// listed returns the stored objects of a resource.
func listed[T rest.Object](t *testing.T, r *rest.Resource) (out []T) {
	t.Helper()
	list, err := r.Store.List(t.Context(), resource.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		obj, err := r.Decode(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, obj.(T))
	}
	return out
}

// stored returns the stored APIServices by name.
func (g *registry) stored(t *testing.T) map[string]*apireg.APIService {
	t.Helper()
	out := map[string]*apireg.APIService{}
	for _, a := range listed[*apireg.APIService](t, g.services) {
		out[a.Name] = a
	}
	return out
}

// readBackends passes the stored Backends to the registrar.
func (g *registry) readBackends(t *testing.T) {
	t.Helper()
	g.findings.partly = nil
	g.findings.SetBackends(listed[*backend.Backend](t, g.backends))
	g.findings.Reconcile()
}

// sync passes the stored objects to the registrar, lets it write, and returns the APIServices.
func (g *registry) sync(t *testing.T, conditions map[string]apiservice.Condition) map[string]*apireg.APIService {
	t.Helper()
	g.findings.known = conditions
	if conditions == nil {
		g.findings.known = map[string]apiservice.Condition{}
	}
	list := listed[*apireg.APIService](t, g.services)
	if list == nil {
		list = []*apireg.APIService{}
	}
	g.findings.SetAPIServices(list)
	g.readBackends(t)
	g.mustWrite(t)
	return g.stored(t)
}

func (g *registry) mustWrite(t *testing.T) {
	t.Helper()
	if _, err := g.write(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// writes returns the number of writes of f.
func (g *registry) writes(f func()) int64 {
	before := g.storage.Revision()
	f()
	return g.storage.Revision() - before
}

// gauge returns the values of one metric by the APIService.
func (g *registry) gauge(t *testing.T, metric string) map[string]float64 {
	t.Helper()
	families, err := g.counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == metric {
				out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// ended is a term that has ended.
func ended() context.Context {
	term, end := context.WithCancel(context.Background())
	end()
	return term
}

// holder returns the Backend of an APIService; "" if there is none.
func holder(a *apireg.APIService) string {
	if a == nil {
		return ""
	}
	return a.Annotations[apiservice.BackendAnnotation]
}

const (
	widget = "v1.widgets.example.com"
	rbac   = "v1.rbac.authorization.k8s.io"
)

func widgets() []discovery.GroupVersion {
	return []discovery.GroupVersion{{Group: "widgets.example.com", Version: "v1"}, {Group: "gateway.networking.k8s.io", Version: "v1"}}
}

// serving describes versions of a group.
func serving(group string, versions ...string) (gvs []discovery.GroupVersion) {
	for _, v := range versions {
		gvs = append(gvs, discovery.GroupVersion{Group: group, Version: v})
	}
	return gvs
}

// everything registers all groups.
func everything(conflict backend.OnConflict, priority int32) *backend.AutoRegister {
	return &backend.AutoRegister{Groups: []string{backend.AllGroups}, OnConflict: conflict, GroupPriorityMinimum: &priority, VersionPriority: new(int32(1000))}
}

var errRefused = errors.New("refused")
