package gateway

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/discovery"
	"portico/discovery/aggregate"
	"portico/gateway/proxy"
	"portico/resource"
	"portico/resource/memory"
	"portico/resource/rest"
)

// registry is a registrar over storage in memory.
type registry struct {
	*registrar
	counts  *prometheus.Registry
	storage *memory.Storage
}

// newRegistry starts with the gateway's own registration and rbac groups, and
// a backend "crd" that said to serve the given ones (nil: it never answered).
func newRegistry(t *testing.T, served []discovery.GroupVersion) *registry {
	t.Helper()
	k, err := apiservice.Kind()
	if err != nil {
		t.Fatal(err)
	}
	storage, counts := memory.New(), prometheus.NewRegistry()
	s := &syncer{
		log: slog.New(slog.DiscardHandler),
		own: []discovery.GroupVersion{{Group: apiservice.Group, Version: "v1"}, {Group: "rbac.authorization.k8s.io", Version: "v1"}},
	}
	s.checker = availability.New(availability.Config{})
	fakeBackend(t, s, "crd", aggregate.NewSource(aggregate.Config{Previous: served}))
	s.conditions.Store(&map[string]apiservice.Condition{})
	g := &registry{storage: storage, counts: counts, registrar: &registrar{
		sync: s, services: &rest.Resource{Kind: k, Store: storage.Store(&k.Info)}, log: s.log,
		metrics: newAvailabilityMetrics(counts), backends: backendsInMemory(t),
	}}
	g.elected.Store(true)
	return g
}

// turn has the registrar hear of what is stored, and write.
func (g *registry) turn(t *testing.T, conditions map[string]apiservice.Condition) map[string]*apireg.APIService {
	t.Helper()
	g.sync.conditions.Store(&conditions)
	list := make([]*apireg.APIService, 0)
	for _, a := range g.stored(t) {
		list = append(list, a)
	}
	g.sync.setAPIServices(list)
	g.stands(t)
	if err := g.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g.stored(t)
}

// stands has the registrar hear of the Backends.
func (g *registry) stands(t *testing.T) {
	t.Helper()
	g.sync.setBackends(storedBackends(t, g.backends))
	n := g.sync.told()
	g.sync.standings.Store(g.sync.stand(&n, map[string]*server{}))
}

func (g *registry) stored(t *testing.T) map[string]*apireg.APIService {
	t.Helper()
	out := map[string]*apireg.APIService{}
	for _, name := range []string{
		"v1.rbac.authorization.k8s.io", "v1.apiregistration.k8s.io", "v1.widgets.example.com", "v1.gateway.networking.k8s.io", "v1.user.example.com", "v1.apps",
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
		{Group: apiservice.Group, Version: "v1"}, // not a backend's to claim
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
		"v1.rbac.authorization.k8s.io": {apiservice.OnStart, ownBackend, 17000, 15},
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
	g.sync.says("crd", aggregate.NewSource(aggregate.Config{Previous: []discovery.GroupVersion{}}))
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
	g.sync.says("crd", aggregate.NewSource(aggregate.Config{})) // has not answered yet
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

func TestMerge(t *testing.T) {
	now := time.Now()
	s := &syncer{grace: time.Minute, own: []discovery.GroupVersion{
		{Group: apiservice.Group, Version: "v1", GroupPriority: 20001}, {Group: "rbac.authorization.k8s.io", Version: "v1"},
	}}
	known := &server{up: &proxy.Way{}, source: aggregate.NewSource(aggregate.Config{Previous: []discovery.GroupVersion{
		{Group: "a.example.com", Version: "v1", Legacy: []metav1.APIResource{{Name: "things"}}},
	}})}
	mute := &server{up: &proxy.Way{}, source: aggregate.NewSource(aggregate.Config{})}
	blind := &server{up: &proxy.Way{}, source: aggregate.NewSource(aggregate.Config{Previous: []discovery.GroupVersion{
		{Group: "a.example.com", Version: "v1", Stale: true, Legacy: []metav1.APIResource{{Name: "things"}}},
	}})}
	down := apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck"}
	of := func(group string) *apireg.APIService {
		return &apireg.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiservice.Name(group, "v1")},
			Spec: apireg.APIServiceSpec{Group: group, Version: "v1", GroupPriorityMinimum: 77, VersionPriority: 7}}
	}
	for name, c := range map[string]struct {
		group                    string
		p                        placement
		routed, available, stale bool
		unknown, listed          bool
		next                     bool
	}{
		"own":                     {"rbac.authorization.k8s.io", placement{local: true, condition: apiservice.Local()}, true, true, false, false, true, false},
		"answering":               {"a.example.com", placement{server: known, condition: apiservice.Passed()}, true, true, false, false, true, false},
		"stale says the server":   {"a.example.com", placement{server: blind, condition: apiservice.Passed()}, true, true, true, false, true, false},
		"never answered":          {"b.example.com", placement{server: mute, condition: down}, true, false, false, true, true, false},
		"no server":               {"c.example.com", placement{condition: down}, true, false, false, true, true, false},
		"nobody serves it":        {"d.example.com", placement{nowhere: true, condition: apiservice.Local()}, false, false, false, false, false, false},
		"down within the grace":   {"a.example.com", placement{server: known, condition: down, verdict: true, since: now.Add(-10 * time.Second)}, true, false, false, false, true, true},
		"down longer than grace":  {"a.example.com", placement{server: known, condition: down, verdict: true, since: now.Add(-2 * time.Minute)}, true, false, true, false, true, false},
		"registration is not his": {apiservice.Group, placement{server: known, condition: apiservice.Passed()}, true, true, false, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMerge(s)
			a := of(c.group)
			m.add(a, c.p)
			rt := (&proxy.Table{Routes: m.routes}).Lookup(c.group, "v1")
			if (rt != nil) != c.routed || rt != nil && (rt.Unavailable() == nil) != c.available {
				t.Errorf("route %+v", rt)
			}
			if c.group == apiservice.Group && !rt.Local {
				t.Error("the registration group was given away")
			}
			var entry *discovery.GroupVersion
			for i := range m.entries {
				if m.entries[i].Group == c.group {
					entry = &m.entries[i]
				}
			}
			if (entry != nil) != c.listed || entry != nil && (entry.Stale != c.stale || entry.Unknown != c.unknown) {
				t.Errorf("entry %+v", entry)
			}
			if c.listed && c.group != apiservice.Group && entry.GroupPriority != 77 {
				t.Errorf("priority %d", entry.GroupPriority)
			}
			if m.conditions[a.Name] != c.p.condition || (m.next > 0) != c.next || m.next > time.Minute {
				t.Errorf("condition %+v, next %v", m.conditions[a.Name], m.next)
			}
		})
	}
}
