package registration

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/resource/rest"
)

// addREST stores a Backend of a REST server that was not read.
func (g *registry) addREST(t *testing.T, name, url string, r *backend.REST) {
	t.Helper()
	b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: backend.Spec{Endpoints: []backend.Endpoint{{URL: url}}, REST: r}}
	if _, err := rest.CreateObject(t.Context(), g.backends, b); err != nil {
		t.Fatal(err)
	}
	g.readBackends(t)
}

// The group/version of a REST server is registered even if its document cannot be read, but
// not before the first check, not in a group of the gateway, and not if the server is that of
// a static Backend.
func TestUnreadRESTServerIsRegistered(t *testing.T) {
	const widget = "v1.widgets.example.com"
	g := newRegistry(t, nil)
	g.addREST(t, "b", one, &backend.REST{Group: "widgets.example.com", Version: "v1"})
	g.addREST(t, "own", two, &backend.REST{Group: "rbac.authorization.k8s.io", Version: "v7"})
	g.addREST(t, "disguised", "unix:///absent/crd", &backend.REST{Group: "user.example.com", Version: "v1"})
	w := &statusWriter{found: g.found, results: &g.results}
	registered := func(name string) metav1.Condition {
		g.sync(t, nil)
		c := w.registered(g.found.BackendStates().ByName[name])
		return metav1.Condition{Status: metav1.ConditionStatus(c.Status), Reason: c.Reason}
	}
	if got := g.sync(t, nil); got[widget] != nil {
		t.Error("it is registered before the first check")
	}
	for name, url := range map[string]string{"b": one, "own": two} {
		g.found.BackendStates().ByName[name].Server.Up.SetVerdict(url, availability.Verdict{Known: true, Err: errors.New("bad status from /openapi.json: 500"), Since: time.Now()})
	}
	got := g.sync(t, nil)
	if a := got[widget]; a == nil || a.Labels[apiservice.AutomanagedLabel] != apiservice.Managed || g.holder(t, got, widget) != "b" {
		t.Errorf("registered as %+v", a)
	}
	if got["v7.rbac.authorization.k8s.io"] != nil || got["v1.user.example.com"] != nil {
		t.Errorf("registered %v", got)
	}
	if c := registered("b"); c.Status != metav1.ConditionTrue {
		t.Errorf("the condition is %+v", c)
	}
	if c := registered("own"); c.Reason != "Conflict" {
		t.Errorf("in a group of the gateway the condition is %+v", c)
	}
	before := g.storage.Revision()
	g.sync(t, nil)
	if now := g.storage.Revision(); now != before {
		t.Errorf("nothing to do, yet %d writes", now-before)
	}
	g.found.BackendStates().ByName["b"].Server.Up.SetEndpoints(nil) // not known any more
	if got := g.sync(t, nil); got[widget] == nil {
		t.Error("it is deleted while the state is unknown")
	}
	g.drop(t, "b")
	if got := g.sync(t, nil); got[widget] != nil {
		t.Error("it outlives its Backend")
	}
}
