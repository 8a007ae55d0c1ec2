package registration

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/routing"
	"portico/resource/rest"
)

// One of several claims to an APIService wins, and wins again once it is stored.
func TestWinner(t *testing.T) {
	keep := func(name string, priority int32) claim { return claim{backend: name, priority: priority} }
	replace := func(name string, priority int32) claim {
		return claim{backend: name, priority: priority, replaces: true}
	}
	core := claim{backend: "core", permanent: true, priority: 17800}
	custom := claim{backend: "crd", permanent: true, priority: 1000}
	for name, c := range map[string]struct {
		holder string
		all    []claim
		want   string
	}{
		"the gateway":                {"b", []claim{{backend: backend.Reserved, permanent: true}, replace("b", 20000)}, backend.Reserved},
		"new: permanent":             {"", []claim{custom, keep("b", 2000)}, "crd"},
		"new: permanent, later":      {"", []claim{keep("b", 20000), custom}, "crd"},
		"new: priority":              {"", []claim{keep("a", 1000), keep("b", 2000), keep("c", 2000)}, "b"},
		"new: equal":                 {"", []claim{keep("a", 1000), keep("b", 1000)}, "a"},
		"gone holder":                {"z", []claim{keep("a", 1000), keep("b", 1001)}, "b"},
		"kept":                       {"a", []claim{keep("a", 1000), keep("b", 2000)}, "a"},
		"kept by the last":           {"b", []claim{keep("a", 1000), keep("b", 1000)}, "b"},
		"replaced":                   {"a", []claim{keep("a", 1000), replace("b", 1000)}, "b"},
		"not replaced":               {"a", []claim{keep("a", 1001), replace("b", 1000)}, "a"},
		"both replace":               {"a", []claim{replace("a", 1000), replace("b", 1000)}, "a"},
		"both replace, another":      {"b", []claim{replace("a", 1000), replace("b", 1000)}, "b"},
		"the higher of two replaces": {"a", []claim{keep("a", 1000), replace("b", 1000), replace("c", 1500)}, "c"},
		"and in another order":       {"a", []claim{keep("a", 1000), replace("b", 1500), replace("c", 1000)}, "b"},
		"core keeps its groups":      {"core", []claim{core, replace("b", 1000)}, "core"},
		"unless another is above":    {"core", []claim{core, replace("b", 20000)}, "b"},
		"custom resources give way":  {"crd", []claim{custom, replace("b", 1000)}, "b"},
		"but not to one that keeps":  {"crd", []claim{custom, keep("b", 20000)}, "crd"},
	} {
		won := winner(c.all, c.holder)
		if won.backend != c.want {
			t.Errorf("%s: %s has it, want %s", name, won.backend, c.want)
		}
		// It wins again once it is stored.
		if again := winner(c.all, won.backend); again.backend != won.backend {
			t.Errorf("%s: then %s has it", name, again.backend)
		}
	}
}

// add stores a Backend with a server of the given group/versions.
func (g *registry) add(t *testing.T, name string, auto *backend.AutoRegister, gvs []discovery.GroupVersion) {
	t.Helper()
	b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: backend.Spec{
		Endpoints: []backend.Endpoint{{URL: "https://" + name}}, AutoRegister: auto,
	}}
	if _, err := rest.CreateObject(t.Context(), g.backends, b); err != nil {
		t.Fatal(err)
	}
	g.readBackends(t)
	g.world.serves(name, sources.NewSource(sources.Config{Previous: gvs}))
}

func (g *registry) drop(t *testing.T, name string) {
	t.Helper()
	if _, err := g.backends.Store.Delete(t.Context(), keyNamed(name), nil); err != nil {
		t.Fatal(err)
	}
}

func (g *registry) holder(t *testing.T, stored map[string]*apireg.APIService, name string) string {
	t.Helper()
	if stored[name] == nil {
		return ""
	}
	return stored[name].Annotations[apiservice.BackendAnnotation]
}

// A Backend's groups are registered as spec.autoRegister says, and deleted with the Backend
// or when spec.autoRegister no longer takes them.
func TestRegisterOfABackend(t *testing.T) {
	const widget, user = "v1.widgets.example.com", "v1.user.example.com"
	g := newRegistry(t, []discovery.GroupVersion{})
	g.sync(t, nil)
	g.add(t, "b", &backend.AutoRegister{Groups: []string{"widgets.example.com", "user.example.com"}, GroupPriorityMinimum: new(int32(77)), VersionPriority: new(int32(7))},
		append(widgets(), discovery.GroupVersion{Group: "user.example.com", Version: "v1"}, discovery.GroupVersion{Group: "user.example.com", Version: "v2", Unlisted: true}))
	got := g.sync(t, nil)
	a := got[widget]
	if a == nil || a.Spec.GroupPriorityMinimum != 77 || a.Spec.VersionPriority != 7 || a.Labels[apiservice.AutomanagedLabel] != apiservice.Managed || g.holder(t, got, widget) != "b" {
		t.Fatalf("registered as %+v", a)
	}
	if got["v1.gateway.networking.k8s.io"] != nil || got["v2.user.example.com"] != nil {
		t.Error("a group that is not in autoRegister, or an unlisted version, is registered")
	}
	// A second Backend with the same group gets a conflict, and the group once the first is
	// deleted.
	g.add(t, "c", &backend.AutoRegister{Groups: []string{"*"}}, widgets())
	if got := g.sync(t, nil); g.holder(t, got, widget) != "b" || g.holder(t, got, "v1.gateway.networking.k8s.io") != "c" {
		t.Errorf("a second Backend: %v", got)
	}
	if lost := (*g.results.Load())["c"].conflicts; !slices.Equal(lost, []conflict{{name: widget, by: "b"}}) {
		t.Errorf("its conflicts are %v", lost)
	}
	g.change(t, user, func(a *apireg.APIService) { delete(a.Labels, apiservice.AutomanagedLabel); a.Annotations = nil })
	g.sync(t, nil)
	if lost := (*g.results.Load())["b"].conflicts; !slices.Equal(lost, []conflict{{name: user}}) {
		t.Errorf("with a user's APIService its conflicts are %v", lost)
	}
	// Nothing is deleted before all Backends are known.
	g.drop(t, "b")
	whole := g.found.BackendStates()
	partly := *whole
	partly.Whole, partly.ByName = false, map[string]*routing.BackendState{}
	partly.List = nil
	g.world.partly = &partly
	if _, err := g.write(t.Context()); err != nil || g.stored(t)[widget] == nil {
		t.Errorf("removed before all Backends are known (%v)", err)
	}
	got = g.sync(t, nil)
	if g.holder(t, got, widget) != "c" || got[user] == nil {
		t.Errorf("after its Backend went: %v", got)
	}
	g.drop(t, "c")
	if got := g.sync(t, nil); got[widget] != nil || got[user] == nil || got["v1.rbac.authorization.k8s.io"] == nil {
		t.Errorf("after all Backends went: %v", got)
	}
	g.add(t, "d", &backend.AutoRegister{Groups: []string{"*"}}, widgets())
	if got := g.sync(t, nil); g.holder(t, got, widget) != "d" {
		t.Errorf("a new Backend: %v", got)
	}
	if _, err := rest.Modify(t.Context(), g.backends, keyNamed("d"), func(b *backend.Backend) error { b.Spec.AutoRegister = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	if got := g.sync(t, nil); got[widget] != nil {
		t.Error("it remains without autoRegister")
	}
}

// Static Backends are stored before their APIServices; the elected gateway restores their
// addresses, and a user may take them over by removing the label.
func TestStaticBackendsAreStored(t *testing.T) {
	const widget = "v1.widgets.example.com"
	g := newRegistry(t, widgets())
	g.leadership.set(ended())
	g.sync(t, nil) // stores the Backend
	stored := storedBackends(t, g.backends)
	if len(stored) != 1 || stored[0].Name != "crd" || stored[0].Labels[apiservice.AutomanagedLabel] != apiservice.OnStart ||
		stored[0].Spec.Endpoints[0].URL != "unix:///absent/crd" || g.stored(t)[widget] == nil {
		t.Fatalf("stored %+v", stored)
	}
	if errs := backend.Validate(stored[0]); len(errs) > 0 {
		t.Errorf("what is stored is not valid: %v", errs)
	}
	move := func(b *backend.Backend) error {
		b.Spec.Endpoints[0].URL = "unix:///another/host"
		b.Spec.Balance = backend.RoundRobin
		return nil
	}
	if _, err := rest.Modify(t.Context(), g.backends, keyNamed("crd"), move); err != nil {
		t.Fatal(err)
	}
	g.sync(t, nil)
	st := g.found.BackendStates().ByName["crd"]
	if where := st.Server.Up.Endpoints()[0].URL; where != "unix:///absent/crd" || st.Server.Up.Policy().Balance != backend.RoundRobin {
		t.Errorf("the gateway goes to %s with %+v", where, st.Server.Up.Policy())
	}
	if b := storedBackends(t, g.backends)[0]; b.Spec.Endpoints[0].URL != "unix:///another/host" {
		t.Error("a gateway that is not elected moved it")
	}
	g.leadership.set(t.Context())
	g.sync(t, nil)
	if b := storedBackends(t, g.backends)[0]; b.Spec.Endpoints[0].URL != "unix:///absent/crd" || b.Spec.Balance != backend.RoundRobin || b.Generation != 2 {
		t.Errorf("the elected gateway left %+v", b)
	}
	take := func(b *backend.Backend) error { b.Labels = nil; return move(b) }
	if _, err := rest.Modify(t.Context(), g.backends, keyNamed("crd"), take); err != nil {
		t.Fatal(err)
	}
	g.sync(t, nil)
	if where := g.found.BackendStates().ByName["crd"].Server.Up.Endpoints()[0].URL; where != "unix:///another/host" {
		t.Errorf("a user's is at %s", where)
	}
	g.drop(t, "crd")
	if g.sync(t, nil); len(storedBackends(t, g.backends)) != 1 {
		t.Error("it does not come back")
	}
}

// A Backend keeps its APIServices until its server is read: a gateway that starts, or is
// elected, moves none.
func TestRegisterAwaitsTheHolder(t *testing.T) {
	const widget = "v1.widgets.example.com"
	for name, c := range map[string]struct {
		conflict backend.OnConflict
		// change changes the holder before its server is read.
		change func(t *testing.T, g *registry)
		want   string
	}{
		"unread":                     {backend.KeepOther, func(*testing.T, *registry) {}, "a"},
		"unread, and one replaces":   {backend.ReplaceOther, func(*testing.T, *registry) {}, "a"},
		"not among the known":        {backend.KeepOther, unknownHolder, "a"},
		"gone":                       {backend.KeepOther, func(t *testing.T, g *registry) { g.drop(t, "a"); g.readBackends(t) }, "b"},
		"does not register it today": {backend.KeepOther, otherGroups, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRegistry(t, []discovery.GroupVersion{})
			g.add(t, "a", &backend.AutoRegister{Groups: []string{"*"}}, widgets())
			if got := g.sync(t, nil); g.holder(t, got, widget) != "a" {
				t.Fatalf("at first %s", g.holder(t, got, widget))
			}
			g.add(t, "b", &backend.AutoRegister{Groups: []string{"*"}, OnConflict: c.conflict, GroupPriorityMinimum: new(int32(2000))}, widgets())
			g.world.serves("a", sources.NewSource(sources.Config{})) // as after a restart
			g.registrar.claims = nil
			g.world.SetAPIServices([]*apireg.APIService{g.stored(t)[widget]})
			g.readBackends(t)
			c.change(t, g)
			if _, err := g.write(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := g.holder(t, g.stored(t), widget); got != c.want {
				t.Errorf("%s has it, want %s", got, c.want)
			}
			lost := slices.Contains((*g.results.Load())["b"].conflicts, conflict{name: widget, by: "a"})
			if lost != (c.want == "a") {
				t.Errorf("the conflicts of b are %v", (*g.results.Load())["b"].conflicts)
			}
		})
	}
}

// unknownHolder makes the registrar know all Backends but a.
func unknownHolder(_ *testing.T, g *registry) {
	partly := *g.found.BackendStates()
	partly.Whole, partly.ByName = false, maps.Clone(partly.ByName)
	delete(partly.ByName, "a")
	partly.List = slices.DeleteFunc(slices.Clone(partly.List), func(st *routing.BackendState) bool { return st.Name == "a" })
	g.world.partly = &partly
}

func otherGroups(t *testing.T, g *registry) {
	change := func(b *backend.Backend) error {
		b.Spec.AutoRegister.Groups = []string{"others.example.com"}
		return nil
	}
	if _, err := rest.Modify(t.Context(), g.backends, keyNamed("a"), change); err != nil {
		t.Fatal(err)
	}
	g.readBackends(t)
}

// An APIService is deleted with its Backend, in a built-in group too, unless it belongs to
// another Backend by then or the Backend is stored and not seen yet.
func TestRegisterRemovesOrphans(t *testing.T) {
	const apps = "v1.apps"
	g := newRegistry(t, []discovery.GroupVersion{{Group: "apps", Version: "v1"}})
	g.sync(t, nil)
	seen := g.sync(t, nil)[apps]
	if seen == nil || seen.Labels[apiservice.AutomanagedLabel] != apiservice.OnStart {
		t.Fatalf("registered as %+v", seen)
	}
	g.startsWith(t) // a gateway that does not start with it
	g.world.SetAPIServices([]*apireg.APIService{seen})
	if _, err := g.write(t.Context()); err != nil || g.stored(t)[apps] == nil {
		t.Errorf("removed although its Backend is there (%v)", err)
	}
	g.drop(t, "crd")
	g.change(t, apps, func(a *apireg.APIService) { a.Annotations[apiservice.BackendAnnotation] = "another" })
	if _, err := g.write(t.Context()); err != nil || g.stored(t)[apps] == nil {
		t.Errorf("removed although it is another Backend's (%v)", err)
	}
	if got := g.sync(t, nil); got[apps] != nil {
		t.Errorf("left %+v", got[apps])
	}
}
