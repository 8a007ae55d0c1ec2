package registration

import (
	"strings"
	"testing"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
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
	w := &statusWriter{found: g.found, results: &g.results}
	c := w.registered(g.found.BackendStates().ByName["b"])
	if c.Status != "False" || c.Reason != "Conflict" || !strings.Contains(c.Message, rbac) || !strings.Contains(c.Message, "v2."+apiservice.Group) {
		t.Errorf("it is told %+v", c)
	}
}

// The versions of a group that several Backends serve are in the order of their
// priorities, whichever was registered first.
func TestPrioritiesOrderTheVersionsOfSeveralBackends(t *testing.T) {
	g := newRegistry(t, []discovery.GroupVersion{})
	g.add(t, "a", &backend.AutoRegister{Groups: []string{"*"}}, serving(shared, "v1"))
	g.turn(t, nil)
	g.add(t, "b", everything(backend.KeepOther, 2000), serving(shared, "v2"))
	if text, place := order(g.turn(t, nil), shared); text != "v2=b v1=a" || place != 2000 {
		t.Errorf("got %s at %d", text, place)
	}
}

// A group of Kubernetes itself is that of the first server that gateways start with and
// that has it, whichever was heard first.
func TestTheOwnerOfABuiltInGroupComesFirst(t *testing.T) {
	const group = "coordination.k8s.io"
	g := newRegistry(t, serving(group, "v1"))
	g.startsWith(t, onSocket(t, "core", "/nobody/core"), onSocket(t, "crd", "/nobody/crd"))
	g.world.says("crd", sources.NewSource(sources.Config{Previous: serving(group, "v2")}))
	if text, _ := order(g.turn(t, nil), group); text != "v2=crd" {
		t.Fatalf("before core is heard: %s", text)
	}
	g.world.says("core", sources.NewSource(sources.Config{Previous: serving(group, "v1")}))
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
	g.world.says("crd", sources.NewSource(sources.Config{}))
	if got := g.turn(t, nil); got[name] == nil {
		t.Error("it went while its server is away")
	}
	g.world.says("crd", sources.NewSource(sources.Config{Previous: serving(shared, "v1")}))
	got := g.turn(t, nil)
	if got[name] != nil {
		t.Error("no server serves it, and it stays")
	}
	if got["v1.rbac.authorization.k8s.io"] == nil {
		t.Error("the gateway's own went with it")
	}
}
