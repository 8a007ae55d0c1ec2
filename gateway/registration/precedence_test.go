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

// serving is the discovery of a server with versions of a group.
func serving(group string, versions ...string) (gvs []discovery.GroupVersion) {
	for _, v := range versions {
		gvs = append(gvs, discovery.GroupVersion{Group: group, Version: v})
	}
	return gvs
}

// everything registers all groups with a high priority of versions.
func everything(conflict backend.OnConflict, priority int32) *backend.AutoRegister {
	return &backend.AutoRegister{Groups: []string{"*"}, OnConflict: conflict, GroupPriorityMinimum: &priority, VersionPriority: new(int32(1000))}
}

// order returns the versions of a group in the order of discovery with their Backends, and
// the priority of the group.
func order(stored map[string]*apireg.APIService, group string) (text string, priority int32) {
	var list []*apireg.APIService
	for _, a := range stored {
		if a.Spec.Group == group {
			list = append(list, a)
			priority = max(priority, a.Spec.GroupPriorityMinimum)
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
	return strings.Join(names, " "), priority
}

const shared = "shared.example.com"

// No version of a group that the gateway serves is registered for another server, and one
// that is stored is deleted.
func TestGroupsOfTheGatewayAreItsOwn(t *testing.T) {
	const rbac = "v7.rbac.authorization.k8s.io"
	lists := append(serving("rbac.authorization.k8s.io", "v7"), serving(apiservice.Group, "v1", "v2")...)
	g := newRegistry(t, []discovery.GroupVersion{})
	g.add(t, "b", everything(backend.ReplaceOther, 20000), lists)
	if err := g.create(t.Context(), automanaged(lists[0], "b", apiservice.OnStart, 17000, 15)); err != nil {
		t.Fatal(err)
	}
	got := g.sync(t, nil)
	for _, name := range []string{rbac, "v1." + apiservice.Group, "v2." + apiservice.Group} {
		if got[name] != nil {
			t.Errorf("%s is registered", name)
		}
	}
	g.sync(t, nil)
	w := &statusWriter{found: g.found, results: &g.results}
	c := w.registered(g.found.BackendStates().ByName["b"])
	if c.Status != "False" || c.Reason != "Conflict" || !strings.Contains(c.Message, rbac) || !strings.Contains(c.Message, "v2."+apiservice.Group) {
		t.Errorf("the condition is %+v", c)
	}
}

// The versions of a group that several Backends serve are in the order of their
// priorities, whichever was registered first.
func TestPrioritiesOrderTheVersionsOfSeveralBackends(t *testing.T) {
	g := newRegistry(t, []discovery.GroupVersion{})
	g.add(t, "a", &backend.AutoRegister{Groups: []string{"*"}}, serving(shared, "v1"))
	g.sync(t, nil)
	g.add(t, "b", everything(backend.KeepOther, 2000), serving(shared, "v2"))
	if text, priority := order(g.sync(t, nil), shared); text != "v2=b v1=a" || priority != 2000 {
		t.Errorf("got %s at %d", text, priority)
	}
}

// An automanaged APIService is deleted when its server answers and no longer serves it, in
// built-in groups as well; while the server is down it remains.
func TestUnservedAPIServiceIsDeleted(t *testing.T) {
	const name = "v1.coordination.k8s.io"
	g := newRegistry(t, serving("coordination.k8s.io", "v1"))
	if got := g.sync(t, nil); got[name] == nil || got[name].Labels[apiservice.AutomanagedLabel] != apiservice.OnStart {
		t.Fatalf("registered as %v", got[name])
	}
	g.world.serves("crd", sources.NewSource(sources.Config{}))
	if got := g.sync(t, nil); got[name] == nil {
		t.Error("it was deleted while its server is down")
	}
	g.world.serves("crd", sources.NewSource(sources.Config{Previous: serving(shared, "v1")}))
	got := g.sync(t, nil)
	if got[name] != nil {
		t.Error("no server serves it, and it stays")
	}
	if got["v1.rbac.authorization.k8s.io"] == nil {
		t.Error("the gateway's own went with it")
	}
}
