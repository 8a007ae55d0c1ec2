package registration

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/sources"
	"portico/gateway/routing"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

// world is what routing finds out, but for the conditions, which it is told.
type world struct {
	*routing.Controller
	known map[string]apiservice.Condition
	// partly, if not nil, are the backendStates instead.
	partly *routing.BackendStates
	// unsettled has what is known be of before a change.
	unsettled bool
}

func (w *world) Settled(srv *routing.Server) bool { return !w.unsettled && w.Controller.Settled(srv) }

func (w *world) Conditions() map[string]apiservice.Condition { return w.known }

func (w *world) BackendStates() *routing.BackendStates {
	if w.partly != nil {
		return w.partly
	}
	return w.Controller.BackendStates()
}

// says has the server of a Backend say what a source does; it is never connected to.
func (w *world) says(name string, what routing.Source) {
	w.Controller.BackendStates().ByName[name].Server.Source = what
}

// registry is a registrar over storage in memory.
type registry struct {
	*registrar
	world   *world
	writer  *statusWriter
	counts  *prometheus.Registry
	storage *memstore.Storage
}

// newRegistry starts with the gateway's own registration and rbac groups, and
// a backend "crd" that said to serve the given ones (nil: it never answered).
func newRegistry(t *testing.T, served []discovery.GroupVersion) *registry {
	t.Helper()
	k, err := apiservice.Kind()
	if err != nil {
		t.Fatal(err)
	}
	g := &registry{storage: memstore.New(), counts: prometheus.NewRegistry(), world: &world{}}
	r := New(Config{
		Findings: g.world, APIServices: &rest.Resource{Kind: k, Store: g.storage.Store(&k.Info)}, Backends: backendsInMemory(t),
		Own:    []discovery.GroupVersion{{Group: apiservice.Group, Version: "v1"}, {Group: "rbac.authorization.k8s.io", Version: "v1"}},
		Broken: func(srv *routing.Server) []openapi.Broken { return srv.Source.Broken() }, Registry: g.counts, Logger: slog.New(slog.DiscardHandler),
	})
	r.Elect(t.Context())
	g.registrar, g.writer = r.registrar, r.status
	g.startsWith(t, onSocket(t, "crd", "/nobody/crd"))
	g.world.says("crd", sources.NewSource(sources.Config{Previous: served}))
	return g
}

// startsWith has the gateway be one that starts with these servers, and knows nothing
// else.
func (g *registry) startsWith(t *testing.T, start ...*routing.StaticBackend) {
	t.Helper()
	g.configured = start
	g.world.Controller = routing.New(routing.Config{Own: g.own, StaticBackends: start, Logger: g.log})
	g.world.SetAPIServices([]*apireg.APIService{})
	g.world.SetBackends([]*backend.Backend{})
	g.world.Reconcile()
}

// turn has the registrar hear of what is stored, and write.
func (g *registry) turn(t *testing.T, conditions map[string]apiservice.Condition) map[string]*apireg.APIService {
	t.Helper()
	g.world.known = conditions
	if conditions == nil {
		g.world.known = map[string]apiservice.Condition{}
	}
	list := make([]*apireg.APIService, 0)
	for _, a := range g.stored(t) {
		list = append(list, a)
	}
	g.world.SetAPIServices(list)
	g.stands(t)
	if err := g.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g.stored(t)
}

// stands has the registrar hear of the Backends.
func (g *registry) stands(t *testing.T) {
	t.Helper()
	g.world.partly = nil
	g.world.SetBackends(storedBackends(t, g.backends))
	g.world.Reconcile()
}

func (g *registry) stored(t *testing.T) map[string]*apireg.APIService {
	t.Helper()
	out := map[string]*apireg.APIService{}
	for _, name := range []string{
		"v1.rbac.authorization.k8s.io", "v1.apiregistration.k8s.io", "v1.widgets.example.com", "v1.gateway.networking.k8s.io", "v1.user.example.com", "v1.apps",
		"v1.apiextensions.k8s.io", "v9.apiextensions.k8s.io", "v9beta1.apiextensions.k8s.io", "v7.rbac.authorization.k8s.io", "v2.apiregistration.k8s.io", "v1.coordination.k8s.io", "v2.coordination.k8s.io",
		"v1.shared.example.com", "v1beta1.shared.example.com", "v2.shared.example.com", "v3.shared.example.com",
	} {
		o, err := g.services.Store.Get(t.Context(), resource.Key{Name: name}, resource.At{})
		if err != nil {
			continue
		}
		obj, err := g.services.Decode(o)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = obj.(*apireg.APIService)
	}
	return out
}

func (g *registry) change(t *testing.T, name string, change func(a *apireg.APIService)) {
	t.Helper()
	_, err := rest.Modify(t.Context(), g.services, resource.Key{Name: name}, func(a *apireg.APIService) error { change(a); return nil })
	if err != nil {
		t.Fatal(err)
	}
}

// count returns the values of one metric by the APIService.
func (g *registry) count(t *testing.T, metric string) map[string]float64 {
	t.Helper()
	families, err := g.counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == "name" {
					out[l.GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return out
}

func widgets() []discovery.GroupVersion {
	return []discovery.GroupVersion{
		{Group: "widgets.example.com", Version: "v1"},
		{Group: "gateway.networking.k8s.io", Version: "v1"},
	}
}

func TestRegisterCreates(t *testing.T) {
	g := newRegistry(t, widgets())
	got := g.turn(t, nil)
	if len(got) != 3 || got["v1.apiregistration.k8s.io"] != nil {
		t.Fatalf("registered %v", got)
	}
	for name, want := range map[string]struct {
		label, backend string
		gp, vp         int32
	}{
		"v1.rbac.authorization.k8s.io": {apiservice.OnStart, backend.Reserved, 17000, 15},
		"v1.widgets.example.com":       {apiservice.Managed, "crd", 1000, 100},
		// Custom resources, although the group ends in k8s.io.
		"v1.gateway.networking.k8s.io": {apiservice.Managed, "crd", 1000, 100},
	} {
		a := got[name]
		if a.Labels[apiservice.AutomanagedLabel] != want.label || a.Annotations[apiservice.BackendAnnotation] != want.backend ||
			a.Spec.GroupPriorityMinimum != want.gp || a.Spec.VersionPriority != want.vp || a.UID == "" {
			t.Errorf("%s: %+v", name, a)
		}
		if c, _ := apiservice.Current(a); c != apiservice.Local() {
			t.Errorf("%s: condition %+v", name, c)
		}
		if errs := apiservice.Validate(a); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
	before := g.storage.Revision()
	g.turn(t, nil)
	if now := g.storage.Revision(); now != before {
		t.Errorf("nothing to do, yet %d writes", now-before)
	}
}

func TestRegisterRepairs(t *testing.T) {
	g := newRegistry(t, widgets())
	g.turn(t, nil)
	g.change(t, "v1.widgets.example.com", func(a *apireg.APIService) {
		a.Spec.GroupPriorityMinimum = 1
		a.Spec.Service = &apireg.ServiceReference{Namespace: "a", Name: "b"}
		a.Annotations = nil
		a.Labels["mine"] = "kept"
	})
	a := g.turn(t, nil)["v1.widgets.example.com"]
	if a.Spec.GroupPriorityMinimum != 1000 || a.Spec.Service != nil || a.Annotations[apiservice.BackendAnnotation] != "crd" || a.Labels["mine"] != "kept" {
		t.Errorf("got %+v", a)
	}
}

func TestRegisterLeavesTheUsersAlone(t *testing.T) {
	g := newRegistry(t, widgets())
	g.turn(t, nil)
	g.change(t, "v1.widgets.example.com", func(a *apireg.APIService) {
		delete(a.Labels, apiservice.AutomanagedLabel)
		a.Spec.GroupPriorityMinimum = 5
	})
	before := g.storage.Revision()
	a := g.turn(t, nil)["v1.widgets.example.com"]
	if a.Spec.GroupPriorityMinimum != 5 || g.storage.Revision() != before {
		t.Errorf("a taken-over APIService was written: %+v", a)
	}
	// Nor is it removed when the backend stops serving it.
	g.world.says("crd", sources.NewSource(sources.Config{Previous: []discovery.GroupVersion{}}))
	got := g.turn(t, nil)
	if got["v1.widgets.example.com"] == nil {
		t.Error("a taken-over APIService was removed")
	}
	if got["v1.gateway.networking.k8s.io"] != nil {
		t.Error("an automanaged APIService outlives its group")
	}
	if got["v1.rbac.authorization.k8s.io"] == nil {
		t.Error("a group of the gateway was removed")
	}
}

func TestRegisterKeepsWhatAMuteBackendHad(t *testing.T) {
	g := newRegistry(t, widgets())
	g.turn(t, nil)
	g.world.says("crd", sources.NewSource(sources.Config{})) // has not answered yet
	if got := g.turn(t, nil); len(got) != 3 {
		t.Errorf("left %v", got)
	}
}

func TestRemoveLooksAgain(t *testing.T) {
	g := newRegistry(t, widgets())
	seen := g.turn(t, nil)["v1.widgets.example.com"]
	g.change(t, seen.Name, func(a *apireg.APIService) { delete(a.Labels, apiservice.AutomanagedLabel) })
	if err := g.remove(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	if g.stored(t)[seen.Name] == nil {
		t.Error("removed although a user took it over meanwhile")
	}
}

func TestConditionIsWrittenOnChange(t *testing.T) {
	g := newRegistry(t, widgets())
	g.turn(t, nil)
	const name = "v1.widgets.example.com"
	failed := apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: "refused"}
	conditions := map[string]apiservice.Condition{name: failed, "v1.gone.example.com": failed}
	a := g.turn(t, conditions)[name]
	if c, _ := apiservice.Current(a); c != failed {
		t.Fatalf("condition %+v", c)
	}
	before := g.storage.Revision()
	for range 3 {
		g.turn(t, conditions)
	}
	if now := g.storage.Revision(); now != before {
		t.Errorf("an equal verdict was written %d times", now-before)
	}
	const gauge, total = "aggregator_unavailable_apiservice", "aggregator_unavailable_apiservice_total"
	if n := g.count(t, total); n[name] != 1 {
		t.Errorf("counted %v", n)
	}
	if n := g.count(t, gauge); n[name] != 1 || len(n) != 2 {
		t.Errorf("gauges %v", n)
	}
	conditions = map[string]apiservice.Condition{name: apiservice.Local()}
	if c, _ := apiservice.Current(g.turn(t, conditions)[name]); c != apiservice.Local() {
		t.Errorf("condition %+v", c)
	}
	if n := g.count(t, gauge); n[name] != 0 || len(n) != 1 {
		t.Errorf("gauges %v; that of a removed APIService must go", n)
	}
}
