package registration

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/routing"
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
		if again := winner(c.all, won.backend); again.backend != won.backend {
			t.Errorf("%s: then %s has it", name, again.backend)
		}
	}
}

func (g *registry) conflicts(name string) []conflict { return (*g.results.Load())[name].conflicts }

// A Backend's groups are registered as spec.autoRegister says, and deleted with the Backend or when
// spec.autoRegister no longer takes them. Nothing is deleted before all Backends are known.
func TestRegisterOfABackend(t *testing.T) {
	const user = "v1.user.example.com"
	g := newRegistry(t, []discovery.GroupVersion{})
	g.sync(t, nil)
	g.add(t, "b", &backend.AutoRegister{Groups: []string{"widgets.example.com", "user.example.com"}, GroupPriorityMinimum: new(int32(77)), VersionPriority: new(int32(7))},
		append(widgets(), discovery.GroupVersion{Group: "user.example.com", Version: "v1"}, discovery.GroupVersion{Group: "user.example.com", Version: "v2", Unlisted: true}))
	got := g.sync(t, nil)
	a := got[widget]
	if a == nil || a.Spec.GroupPriorityMinimum != 77 || a.Spec.VersionPriority != 7 || a.Labels[apiservice.AutomanagedLabel] != apiservice.Managed || holder(a) != "b" {
		t.Fatalf("registered as %+v", a)
	}
	if got["v1.gateway.networking.k8s.io"] != nil || got["v2.user.example.com"] != nil {
		t.Error("a group that is not in autoRegister, or an unlisted version, is registered")
	}
	// A second Backend with the same group gets a conflict, and the group once the first is deleted.
	g.add(t, "c", &backend.AutoRegister{Groups: []string{"*"}}, widgets())
	if got := g.sync(t, nil); holder(got[widget]) != "b" || holder(got["v1.gateway.networking.k8s.io"]) != "c" {
		t.Errorf("a second Backend: %v", got)
	}
	if lost := g.conflicts("c"); !slices.Equal(lost, []conflict{{name: widget, by: "b"}}) {
		t.Errorf("its conflicts are %v", lost)
	}
	modify(t, g.services, user, func(a *apireg.APIService) { delete(a.Labels, apiservice.AutomanagedLabel); a.Annotations = nil })
	g.sync(t, nil)
	if lost := g.conflicts("b"); !slices.Equal(lost, []conflict{{name: user}}) {
		t.Errorf("with a user's APIService the conflicts are %v", lost)
	}
	g.drop(t, "b")
	g.findings.partly = &routing.BackendStates{ByName: map[string]*routing.BackendState{}}
	if g.mustWrite(t); g.stored(t)[widget] == nil {
		t.Error("removed before all Backends are known")
	}
	if got = g.sync(t, nil); holder(got[widget]) != "c" || got[user] == nil {
		t.Errorf("after its Backend was deleted: %v", got)
	}
	modify(t, g.backends, "c", func(b *backend.Backend) { b.Spec.AutoRegister = nil })
	if got := g.sync(t, nil); got[widget] != nil || got[user] == nil || got[rbac] == nil {
		t.Errorf("without autoRegister: %v", got)
	}
}

// A Backend keeps its APIServices until its server is read: a gateway that starts, or is elected, moves
// none.
func TestUnreadHolderKeepsItsAPIServices(t *testing.T) {
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
			if got := holder(g.sync(t, nil)[widget]); got != "a" {
				t.Fatalf("at first %s", got)
			}
			g.add(t, "b", everything(c.conflict, 2000), widgets())
			g.serves("a", nil) // as after a restart
			g.registrar.claims = nil
			g.findings.SetAPIServices([]*apireg.APIService{g.stored(t)[widget]})
			g.readBackends(t)
			c.change(t, g)
			g.mustWrite(t)
			if got := holder(g.stored(t)[widget]); got != c.want {
				t.Errorf("%s has it, want %s", got, c.want)
			}
			if lost := slices.Contains(g.conflicts("b"), conflict{name: widget, by: "a"}); lost != (c.want == "a") {
				t.Errorf("the conflicts of b are %v", g.conflicts("b"))
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
	g.findings.partly = &partly
}

func otherGroups(t *testing.T, g *registry) {
	modify(t, g.backends, "a", func(b *backend.Backend) { b.Spec.AutoRegister.Groups = []string{"others.example.com"} })
	g.readBackends(t)
}

// An APIService is deleted with its Backend, in a built-in group too, unless it belongs to another
// Backend by then or the Backend is stored and not seen yet.
func TestRegisterRemovesOrphans(t *testing.T) {
	const apps = "v1.apps"
	g := newRegistry(t, serving("apps", "v1"))
	g.sync(t, nil)
	seen := g.sync(t, nil)[apps]
	if seen == nil || seen.Labels[apiservice.AutomanagedLabel] != apiservice.OnStart {
		t.Fatalf("registered as %+v", seen)
	}
	g.startsWith(t) // a gateway that does not start with it
	g.findings.SetAPIServices([]*apireg.APIService{seen})
	if g.mustWrite(t); g.stored(t)[apps] == nil {
		t.Error("removed although its Backend is stored")
	}
	g.drop(t, "crd")
	modify(t, g.services, apps, func(a *apireg.APIService) { a.Annotations[apiservice.BackendAnnotation] = "another" })
	if g.mustWrite(t); g.stored(t)[apps] == nil {
		t.Error("removed although it belongs to another Backend")
	}
	if got := g.sync(t, nil); got[apps] != nil {
		t.Errorf("left %+v", got[apps])
	}
}

// No version of a group that the gateway serves is registered for another server, and one that is
// stored is deleted.
func TestGroupsOfTheGatewayAreReserved(t *testing.T) {
	const other = "v7.rbac.authorization.k8s.io"
	lists := append(serving("rbac.authorization.k8s.io", "v7"), serving(apiservice.Group, "v1", "v2")...)
	g := newRegistry(t, []discovery.GroupVersion{})
	g.add(t, "b", everything(backend.ReplaceOther, 20000), lists)
	if err := g.create(t.Context(), automanaged(lists[0], "b", apiservice.OnStart, 17000, 15)); err != nil {
		t.Fatal(err)
	}
	got := g.sync(t, nil)
	for _, name := range []string{other, "v1." + apiservice.Group, "v2." + apiservice.Group} {
		if got[name] != nil {
			t.Errorf("%s is registered", name)
		}
	}
	g.sync(t, nil)
	c := g.writer.registered(g.state("b"))
	if c.Status != "False" || c.Reason != "Conflict" || !strings.Contains(c.Message, other) || !strings.Contains(c.Message, "v2."+apiservice.Group) {
		t.Errorf("the condition is %+v", c)
	}
}

// The versions of a group that several Backends serve are in the order of their priorities, whichever
// was registered first.
func TestPrioritiesOrderTheVersionsOfSeveralBackends(t *testing.T) {
	g := newRegistry(t, []discovery.GroupVersion{})
	g.add(t, "a", &backend.AutoRegister{Groups: []string{"*"}}, serving("a.example.com", "v1"))
	g.sync(t, nil)
	g.add(t, "b", everything(backend.KeepOther, 2000), serving("a.example.com", "v2"))
	list := apiservice.Ordered(slices.Collect(maps.Values(g.sync(t, nil))))
	if len(list) != 3 || holder(list[1]) != "b" || list[1].Spec.GroupPriorityMinimum != 2000 || holder(list[2]) != "a" {
		t.Errorf("got %v", list)
	}
}

// The group/version of a REST server is registered even if its document cannot be read, but not before
// the first check, not in a group of the gateway, and not if the server is that of a static Backend.
func TestUnreadRESTServerIsRegistered(t *testing.T) {
	g := newRegistry(t, nil)
	add := func(name, url, group, version string) {
		g.addBackend(t, name, backend.Spec{Endpoints: []backend.Endpoint{{URL: url}}, REST: &backend.REST{Group: group, Version: version}})
	}
	add("b", one, "widgets.example.com", "v1")
	add("own", two, "rbac.authorization.k8s.io", "v7")
	add("disguised", "unix:///absent/crd", "user.example.com", "v1")
	if got := g.sync(t, nil); got[widget] != nil {
		t.Error("it is registered before the first check")
	}
	g.verdict("b", one, errors.New("bad status from /openapi.json: 500"))
	g.verdict("own", two, errors.New("bad status from /openapi.json: 500"))
	got := g.sync(t, nil)
	if a := got[widget]; a == nil || a.Labels[apiservice.AutomanagedLabel] != apiservice.Managed || holder(a) != "b" {
		t.Errorf("registered as %+v", a)
	}
	if got["v7.rbac.authorization.k8s.io"] != nil || got["v1.user.example.com"] != nil {
		t.Errorf("registered %v", got)
	}
	if n := g.writes(func() { g.sync(t, nil) }); n != 0 {
		t.Errorf("%d writes without a difference", n)
	}
	if c := g.writer.registered(g.state("b")); c.Status != "True" || !strings.HasSuffix(c.Message, "nothing is served before the OpenAPI document of the server has been read") {
		t.Errorf("the condition is %+v", c)
	}
	if c := g.writer.registered(g.state("own")); c.Reason != "Conflict" {
		t.Errorf("in a group of the gateway the condition is %+v", c)
	}
	g.state("b").Server.Up.SetEndpoints(nil) // unknown again
	if got := g.sync(t, nil); got[widget] == nil {
		t.Error("it is deleted while the state is unknown")
	}
	g.drop(t, "b")
	if got := g.sync(t, nil); got[widget] != nil {
		t.Error("it outlives its Backend")
	}
}
