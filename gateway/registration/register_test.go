package registration

import (
	"context"
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

// world is the findings of a Controller, with the conditions of a test.
type world struct {
	*routing.Controller
	known map[string]apiservice.Condition
	// partly, if not nil, are the BackendStates instead.
	partly *routing.BackendStates
	// outdated makes the verdicts on all servers those of earlier checks.
	outdated bool
}

func (w *world) Current(srv *routing.Server) bool { return !w.outdated && w.Controller.Current(srv) }

func (w *world) Conditions() map[string]apiservice.Condition { return w.known }

func (w *world) BackendStates() *routing.BackendStates {
	if w.partly != nil {
		return w.partly
	}
	return w.Controller.BackendStates()
}

// serves replaces the source of a Backend's server, which is never connected to.
func (w *world) serves(name string, source routing.Source) {
	w.Controller.BackendStates().ByName[name].Server.Source = source
}

// registry is a registrar over storage in memory.
type registry struct {
	*registrar
	world   *world
	writer  *statusWriter
	counts  *prometheus.Registry
	storage *memstore.Storage
}

// newRegistry starts with the gateway's own registration and RBAC groups and a static Backend
// "crd" that serves the given group/versions (nil: they were never read).
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
	g.startsWith(t, onSocket(t, "crd", "/absent/crd"))
	g.world.serves("crd", sources.NewSource(sources.Config{Previous: served}))
	return g
}

// startsWith restarts the gateway with these static Backends.
func (g *registry) startsWith(t *testing.T, start ...*routing.StaticBackend) {
	t.Helper()
	g.static = start
	g.world.Controller = routing.New(routing.Config{Own: g.own, StaticBackends: start, Logger: g.log})
	g.world.SetAPIServices([]*apireg.APIService{})
	g.world.SetBackends([]*backend.Backend{})
	g.world.Reconcile()
}

// sync passes the stored objects to the registrar and lets it write.
func (g *registry) sync(t *testing.T, conditions map[string]apiservice.Condition) map[string]*apireg.APIService {
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
	g.readBackends(t)
	if _, err := g.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g.stored(t)
}

// readBackends passes the stored Backends to the registrar.
func (g *registry) readBackends(t *testing.T) {
	t.Helper()
	g.world.partly = nil
	g.world.SetBackends(storedBackends(t, g.backends))
	g.world.Reconcile()
}

func (g *registry) stored(t *testing.T) map[string]*apireg.APIService {
	t.Helper()
	out := map[string]*apireg.APIService{}
	for _, name := range []string{
		"v1.rbac.authorization.k8s.io", "v1.apiregistration.k8s.io", "v1.widgets.example.com", "v1.gateway.networking.k8s.io", "v1.user.example.com", "v2.user.example.com", "v1.apps",
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

// Every group/version of the gateway and of its static Backends gets an automanaged
// APIService, once.
func TestRegisterCreates(t *testing.T) {
	g := newRegistry(t, widgets())
	got := g.sync(t, nil)
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
	g.sync(t, nil)
	if now := g.storage.Revision(); now != before {
		t.Errorf("nothing to do, yet %d writes", now-before)
	}
}

// The spec and the annotation of an automanaged APIService are restored; labels of others
// remain.
func TestRegisterRepairs(t *testing.T) {
	g := newRegistry(t, widgets())
	g.sync(t, nil)
	g.change(t, "v1.widgets.example.com", func(a *apireg.APIService) {
		a.Spec.GroupPriorityMinimum = 1
		a.Spec.Service = &apireg.ServiceReference{Namespace: "a", Name: "b"}
		a.Annotations = nil
		a.Labels["mine"] = "kept"
	})
	a := g.sync(t, nil)["v1.widgets.example.com"]
	if a.Spec.GroupPriorityMinimum != 1000 || a.Spec.Service != nil || a.Annotations[apiservice.BackendAnnotation] != "crd" || a.Labels["mine"] != "kept" {
		t.Errorf("got %+v", a)
	}
}

// An APIService without the automanaged label is neither changed nor deleted.
func TestRegisterIgnoresUsersAPIServices(t *testing.T) {
	g := newRegistry(t, widgets())
	g.sync(t, nil)
	g.change(t, "v1.widgets.example.com", func(a *apireg.APIService) {
		delete(a.Labels, apiservice.AutomanagedLabel)
		a.Spec.GroupPriorityMinimum = 5
	})
	before := g.storage.Revision()
	a := g.sync(t, nil)["v1.widgets.example.com"]
	if a.Spec.GroupPriorityMinimum != 5 || g.storage.Revision() != before {
		t.Errorf("a taken-over APIService was written: %+v", a)
	}
	// Nor is it removed when the backend stops serving it.
	g.world.serves("crd", sources.NewSource(sources.Config{Previous: []discovery.GroupVersion{}}))
	got := g.sync(t, nil)
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

// The APIServices of a server that was not read since the gateway started remain, whatever
// was restored of it.
func TestUnreadServerKeepsItsAPIServices(t *testing.T) {
	g := newRegistry(t, widgets())
	g.sync(t, nil)
	restored := sources.NewSource(sources.Config{})
	restored.Restore(widgets()[1:])
	for _, source := range []*sources.Source{sources.NewSource(sources.Config{}), restored} {
		g.world.serves("crd", source)
		if got := g.sync(t, nil); len(got) != 3 {
			t.Errorf("left %v", got)
		}
	}
}

// An APIService that a user took over is not deleted by an older finding.
func TestRemoveOfAChangedAPIService(t *testing.T) {
	g := newRegistry(t, widgets())
	seen := g.sync(t, nil)["v1.widgets.example.com"]
	g.change(t, seen.Name, func(a *apireg.APIService) { delete(a.Labels, apiservice.AutomanagedLabel) })
	if err := g.remove(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	if g.stored(t)[seen.Name] == nil {
		t.Error("removed although a user took it over meanwhile")
	}
}

// A condition is written and counted when it changes.
func TestConditionIsWrittenOnChange(t *testing.T) {
	g := newRegistry(t, widgets())
	g.sync(t, nil)
	const name = "v1.widgets.example.com"
	failed := apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: "refused"}
	conditions := map[string]apiservice.Condition{name: failed, "v1.gone.example.com": failed}
	a := g.sync(t, conditions)[name]
	if c, _ := apiservice.Current(a); c != failed {
		t.Fatalf("condition %+v", c)
	}
	before := g.storage.Revision()
	for range 3 {
		g.sync(t, conditions)
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
	if c, _ := apiservice.Current(g.sync(t, conditions)[name]); c != apiservice.Local() {
		t.Errorf("condition %+v", c)
	}
	if n := g.count(t, gauge); n[name] != 0 || len(n) != 1 {
		t.Errorf("gauges %v; that of a removed APIService must go", n)
	}
}

// ended is a term that has ended.
func ended() context.Context {
	term, end := context.WithCancel(context.Background())
	end()
	return term
}

// A gateway that is not elected creates each missing APIService once, and writes nothing else.
func TestRegisterWithoutElection(t *testing.T) {
	g := newRegistry(t, widgets())
	g.leadership.set(ended())
	name := "v1.widgets.example.com"
	if got := g.sync(t, nil); got[name] == nil {
		t.Fatalf("not registered: %v", got)
	}
	failed := map[string]apiservice.Condition{name: {Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: "refused"}}
	if now, _ := apiservice.Current(g.sync(t, failed)[name]); !now.Available() {
		t.Errorf("it wrote a condition: %+v", now)
	}
	if _, err := g.services.Store.Delete(t.Context(), resource.Key{Name: name}, nil); err != nil {
		t.Fatal(err)
	}
	if got := g.sync(t, failed); got[name] != nil {
		t.Error("what another removed was created again")
	}
	g.world.serves("crd", sources.NewSource(sources.Config{Previous: widgets()[1:]}))
	g.sync(t, nil)
	g.world.serves("crd", sources.NewSource(sources.Config{Previous: widgets()}))
	if got := g.sync(t, nil); got[name] == nil {
		t.Error("what went and came again is not registered")
	}
}
