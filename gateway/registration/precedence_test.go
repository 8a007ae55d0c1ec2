package registration

import (
	"slices"
	"strings"
	"testing"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/aggregate"
)

// serving is what a server says that lists versions of a group.
func serving(group string, versions ...string) (gvs []discovery.GroupVersion) {
	for _, v := range versions {
		gvs = append(gvs, discovery.GroupVersion{Group: group, Version: v})
	}
	return gvs
}

// everything registers all groups, far before others.
func everything(conflict backend.OnConflict, priority int32) *backend.AutoRegister {
	return &backend.AutoRegister{Groups: []string{"*"}, OnConflict: conflict, GroupPriorityMinimum: &priority, VersionPriority: new(int32(1000))}
}

// order returns the versions of a group as discovery has them, the preferred one
// first, with who has each, and the place of the group.
func order(stored map[string]*apireg.APIService, group string) (text string, place int32) {
	var list []*apireg.APIService
	for _, a := range stored {
		if a.Spec.Group == group {
			list = append(list, a)
			place = max(place, a.Spec.GroupPriorityMinimum)
		}
	}
	var names []string
	for _, a := range apiservice.Ordered(list) {
		by := a.Annotations[apiservice.BackendAnnotation]
		if !apiservice.IsAutomanaged(a) {
			by = "user"
		}
		names = append(names, a.Spec.Version+"="+by)
	}
	return strings.Join(names, " "), place
}

const shared = "shared.example.com"

// A version of a group that others have comes after theirs, whatever it is called, and
// does not raise the group; and that stands.
func TestVersionsOfOthersComeFirst(t *testing.T) {
	const coordination = "coordination.k8s.io"
	claim := func(name, version string, auto *backend.AutoRegister) func(*testing.T, *registry) {
		return func(t *testing.T, g *registry) { g.add(t, name, auto, serving(shared, version)) }
	}
	for name, c := range map[string]struct {
		first []discovery.GroupVersion // of crd
		then  []func(*testing.T, *registry)
		group string
		want  string
		place int32
	}{
		"of Kubernetes itself": {serving(coordination, "v1"), []func(*testing.T, *registry){func(t *testing.T, g *registry) {
			g.add(t, "b", everything(backend.KeepOther, 19000), serving(coordination, "v2"))
		}}, coordination, "v1=crd v2=b", 16500},
		"of the same Backend":     {serving("apiextensions.k8s.io", "v1", "v9"), nil, "apiextensions.k8s.io", "v1=crd v9=crd", 16700},
		"and of one that is beta": {serving("apiextensions.k8s.io", "v1", "v9beta1"), nil, "apiextensions.k8s.io", "v1=crd v9beta1=crd", 16700},
		"of custom resources": {serving(shared, "v1", "v1beta1"), []func(*testing.T, *registry){claim("b", "v2", everything(backend.KeepOther, 19000))},
			shared, "v1=crd v1beta1=crd v2=b", 1000},
		"of two Backends": {nil, []func(*testing.T, *registry){
			claim("c", "v1", &backend.AutoRegister{Groups: []string{"*"}}), claim("a", "v2", everything(backend.KeepOther, 19000)), claim("b", "v3", everything(backend.KeepOther, 19000)),
		}, shared, "v1=c v2=a v3=b", 1000},
		"custom resources come later": {nil, []func(*testing.T, *registry){claim("b", "v1", &backend.AutoRegister{Groups: []string{"*"}}), func(t *testing.T, g *registry) {
			g.world.says("crd", aggregate.NewSource(aggregate.Config{Previous: serving(shared, "v2")}))
		}}, shared, "v1=b v2=crd", 1000},
		"a user's": {nil, []func(*testing.T, *registry){claim("c", "v1", &backend.AutoRegister{Groups: []string{"*"}}), func(t *testing.T, g *registry) {
			g.change(t, "v1."+shared, func(a *apireg.APIService) {
				a.Labels, a.Annotations, a.Spec.Service = nil, nil, &apireg.ServiceReference{Namespace: "ns", Name: "s"}
			})
		}, claim("b", "v2", everything(backend.KeepOther, 19000))}, shared, "v1=user v2=b", 1000},
		"unless replaced": {serving(shared, "v1"), []func(*testing.T, *registry){claim("b", "v2", everything(backend.ReplaceOther, 2000))},
			shared, "v2=b v1=crd", 2000},
		"but not from below": {serving(shared, "v1"), []func(*testing.T, *registry){claim("b", "v2", everything(backend.ReplaceOther, 999))},
			shared, "v1=crd v2=b", 1000},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRegistry(t, append([]discovery.GroupVersion{}, c.first...))
			g.turn(t, nil)
			for _, change := range c.then {
				change(t, g)
				g.turn(t, nil)
			}
			got := g.turn(t, nil)
			if text, place := order(got, c.group); text != c.want || place != c.place {
				t.Errorf("%s, the group at %d; want %s at %d", text, place, c.want, c.place)
			}
			before := g.storage.Revision()
			g.registrar.claims = nil // as another gateway finds it
			g.turn(t, nil)
			if now := g.storage.Revision(); now != before {
				t.Errorf("it does not stand: %d writes", now-before)
			}
			if n := len((*g.outcomes.Load())["b"].conflicts); n != 0 {
				t.Errorf("b is told of %d conflicts", n)
			}
		})
	}
}

// What was registered before others were to come first is put right; and after those
// went, the place is its own.
func TestPrecedenceIsRestored(t *testing.T) {
	const group = "coordination.k8s.io"
	g := newRegistry(t, serving(group, "v1"))
	g.add(t, "b", everything(backend.KeepOther, 1000), serving(group, "v2"))
	g.turn(t, nil)
	g.change(t, "v2."+group, func(a *apireg.APIService) { a.Spec.VersionPriority = 15 })
	if text, _ := order(g.stored(t), group); text != "v2=b v1=crd" {
		t.Fatalf("at first %s", text)
	}
	g.registrar.claims = nil
	if text, _ := order(g.turn(t, nil), group); text != "v1=crd v2=b" {
		t.Errorf("put right to %s", text)
	}
}

// Where no version priority is low enough to come after others, it is not registered.
func TestNoPlaceBehindOthers(t *testing.T) {
	g := newRegistry(t, []discovery.GroupVersion{})
	g.add(t, "a", &backend.AutoRegister{Groups: []string{"*"}, VersionPriority: new(int32(1))}, serving(shared, "v1"))
	g.turn(t, nil)
	g.add(t, "b", everything(backend.KeepOther, 19000), serving(shared, "v1beta1", "v2"))
	for range 2 {
		if text, place := order(g.turn(t, nil), shared); text != "v1=a v1beta1=b" || place != 1000 {
			t.Errorf("%s, the group at %d", text, place)
		}
	}
	lost := (*g.outcomes.Load())["b"].conflicts
	if !slices.Equal(lost, []conflict{{name: "v2." + shared, by: "a", crowded: true}}) || !strings.Contains(lost[0].holder(), `of Backend "a"`) {
		t.Errorf("it is told %v", lost)
	}
}

// No version of a group that the gateway serves is registered for another server: not
// by its name, nor as what a REST server is to be, and not for one that had it before.
func TestGroupsOfTheGatewayAreItsOwn(t *testing.T) {
	const rbac = "v7.rbac.authorization.k8s.io"
	lists := append(serving("rbac.authorization.k8s.io", "v7"), serving(apiservice.Group, "v1", "v2")...)
	g := newRegistry(t, []discovery.GroupVersion{})
	g.add(t, "b", everything(backend.ReplaceOther, 20000), lists)
	if err := g.create(t.Context(), automanaged(lists[0], "b", apiservice.OnStart, 17000, 15)); err != nil {
		t.Fatal(err)
	}
	got := g.turn(t, nil)
	for _, name := range []string{rbac, "v1." + apiservice.Group, "v2." + apiservice.Group} {
		if got[name] != nil {
			t.Errorf("%s is registered", name)
		}
	}
	g.turn(t, nil)
	w := &statusWriter{found: g.found, outcomes: &g.outcomes}
	c := w.registered(g.found.Standings().ByName["b"])
	if c.Status != "False" || c.Reason != "Conflict" || !strings.Contains(c.Message, rbac) || !strings.Contains(c.Message, "v2."+apiservice.Group) {
		t.Errorf("it is told %+v", c)
	}
}

// Who is first stays first when its server has another version in the place of the one
// that it had.
func TestFirstReplacesItsVersion(t *testing.T) {
	g := newRegistry(t, []discovery.GroupVersion{})
	g.add(t, "a", &backend.AutoRegister{Groups: []string{"*"}}, serving(shared, "v1beta1"))
	g.turn(t, nil)
	g.add(t, "squat", everything(backend.KeepOther, 19000), serving(shared, "v1"))
	if text, _ := order(g.turn(t, nil), shared); text != "v1beta1=a v1=squat" {
		t.Fatalf("at first %s", text)
	}
	for _, version := range []string{"v2", "v3"} {
		g.world.says("a", aggregate.NewSource(aggregate.Config{Previous: serving(shared, version)}))
		for range 2 {
			if text, _ := order(g.turn(t, nil), shared); text != version+"=a v1=squat" {
				t.Errorf("then %s", text)
			}
		}
	}
}

// What was registered and served before there were such rules stays, also where there
// is no place for it behind others; that is told.
func TestNoPlaceForWhatIsThere(t *testing.T) {
	least := func() *backend.AutoRegister {
		return &backend.AutoRegister{Groups: []string{"*"}, VersionPriority: new(int32(1))}
	}
	g := newRegistry(t, []discovery.GroupVersion{})
	for by, versions := range map[string][]string{"a": {"v1", "v3"}, "b": {"v2"}} {
		for _, gv := range serving(shared, versions...) {
			if err := g.create(t.Context(), automanaged(gv, by, apiservice.Managed, 1000, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.add(t, "a", least(), serving(shared, "v1", "v3"))
	g.add(t, "b", least(), serving(shared, "v2"))
	g.turn(t, nil)
	if text, _ := order(g.turn(t, nil), shared); text != "v3=a v2=b v1=a" {
		t.Errorf("there is %s", text)
	}
	if lost := (*g.outcomes.Load())["b"].conflicts; !slices.Equal(lost, []conflict{{name: "v2." + shared, by: "a", crowded: true}}) {
		t.Errorf("b is told %v", lost)
	}
}

// A group of Kubernetes itself is that of the first server that gateways start with and
// that has it, whichever was heard first.
func TestTheOwnerOfABuiltInGroupComesFirst(t *testing.T) {
	const group = "coordination.k8s.io"
	g := newRegistry(t, serving(group, "v1"))
	g.startsWith(t, onSocket(t, "core", "/nobody/core"), onSocket(t, "crd", "/nobody/crd"))
	g.world.says("crd", aggregate.NewSource(aggregate.Config{Previous: serving(group, "v2")}))
	if text, _ := order(g.turn(t, nil), group); text != "v2=crd" {
		t.Fatalf("before core is heard: %s", text)
	}
	g.world.says("core", aggregate.NewSource(aggregate.Config{Previous: serving(group, "v1")}))
	g.turn(t, nil)
	if text, _ := order(g.turn(t, nil), group); text != "v1=core v2=crd" {
		t.Errorf("then: %s", text)
	}
}

// An automanaged APIService goes when its server answers and does not serve it any
// more, in built-in groups as well; while the server is away it stays.
func TestWhatIsNotServedAnyMoreGoes(t *testing.T) {
	const name = "v1.coordination.k8s.io"
	g := newRegistry(t, serving("coordination.k8s.io", "v1"))
	if got := g.turn(t, nil); got[name] == nil || got[name].Labels[apiservice.AutomanagedLabel] != apiservice.OnStart {
		t.Fatalf("registered as %v", got[name])
	}
	g.world.says("crd", aggregate.NewSource(aggregate.Config{}))
	if got := g.turn(t, nil); got[name] == nil {
		t.Error("it went while its server is away")
	}
	g.world.says("crd", aggregate.NewSource(aggregate.Config{Previous: serving(shared, "v1")}))
	got := g.turn(t, nil)
	if got[name] != nil {
		t.Error("no server serves it, and it stays")
	}
	if got["v1.rbac.authorization.k8s.io"] == nil {
		t.Error("the gateway's own went with it")
	}
}
