package registration

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/resource"
)

// Every group/version of the gateway and of its static Backends gets an automanaged APIService, once.
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
		rbac:   {apiservice.OnStart, backend.Reserved, 17000, 15},
		widget: {apiservice.Managed, "crd", 1000, 100},
		// Custom resources, although the group ends in k8s.io.
		"v1.gateway.networking.k8s.io": {apiservice.Managed, "crd", 1000, 100},
	} {
		a := got[name]
		if a.Labels[apiservice.AutomanagedLabel] != want.label || holder(a) != want.backend ||
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
	if n := g.writes(func() { g.sync(t, nil) }); n != 0 {
		t.Errorf("%d writes without a difference", n)
	}
}

// The spec and the annotation of an automanaged APIService are restored, at any time, and one that is deleted is created again;
// other labels remain.
func TestRegisterRepairs(t *testing.T) {
	g := newRegistry(t, widgets())
	made := g.sync(t, nil)
	for _, name := range []string{widget, rbac} { // of a server, and of the gateway
		want := made[name]
		modify(t, g.services, name, func(a *apireg.APIService) {
			a.Spec.GroupPriorityMinimum = 1
			a.Spec.Service = &apireg.ServiceReference{Namespace: "a", Name: "b"}
			a.Annotations = nil
			a.Labels["mine"] = "kept"
		})
		a := g.sync(t, nil)[name]
		if !sameRegistration(a, want) || a.Spec.Service != nil || a.Labels["mine"] != "kept" {
			t.Errorf("got %+v", a)
		}
		if _, err := g.services.Store.Delete(t.Context(), resource.Key{Name: name}, nil); err != nil {
			t.Fatal(err)
		}
		if a := g.sync(t, nil)[name]; a == nil || !sameRegistration(a, want) || a.UID == want.UID {
			t.Errorf("%s was deleted, and now is %+v", name, a)
		}
	}
}

// An APIService without the automanaged label is neither changed nor deleted, also by a gateway that
// has not seen the change.
func TestRegisterIgnoresUsersAPIServices(t *testing.T) {
	g := newRegistry(t, widgets())
	seen := g.sync(t, nil)[widget]
	modify(t, g.services, widget, func(a *apireg.APIService) {
		delete(a.Labels, apiservice.AutomanagedLabel)
		a.Spec.GroupPriorityMinimum = 5
	})
	if err := errors.Join(g.remove(t.Context(), seen), g.repair(t.Context(), seen)); err != nil {
		t.Fatal(err)
	}
	if n := g.writes(func() { g.sync(t, nil) }); n != 0 || g.stored(t)[widget].Spec.GroupPriorityMinimum != 5 {
		t.Errorf("%d writes, now %+v", n, g.stored(t)[widget])
	}
	g.serves("crd", []discovery.GroupVersion{})
	if got := g.sync(t, nil); got[widget] == nil || got["v1.gateway.networking.k8s.io"] != nil || got[rbac] == nil {
		t.Errorf("after the server stopped to serve its groups: %v", got)
	}
}

// An automanaged APIService is deleted when its server answers and no longer serves it, in built-in
// groups as well. It remains while the server is not read, also if discovery was restored, and while
// the server lists the group/version and its document cannot be read.
func TestUnservedAPIServiceIsDeleted(t *testing.T) {
	const lease, other = "v1.coordination.k8s.io", "v1.shared.example.com"
	g := newRegistry(t, append(serving("coordination.k8s.io", "v1"), serving("shared.example.com", "v1")...))
	g.sync(t, nil) // creates them
	if got := g.sync(t, nil); got[lease].Labels[apiservice.AutomanagedLabel] != apiservice.OnStart {
		t.Fatalf("registered as %v", got[lease])
	}
	restored := sources.NewSource(sources.Config{})
	restored.Restore(widgets())
	for _, source := range []*sources.Source{sources.NewSource(sources.Config{}), restored} {
		g.state("crd").Server.Source = source
		if got := g.sync(t, nil); got[lease] == nil || got[other] == nil {
			t.Errorf("while the server is not read: %v", got)
		}
	}
	unknown := serving("shared.example.com", "v1")
	unknown[0].Unknown = true
	g.serves("crd", unknown)
	if got := g.sync(t, nil); got[lease] != nil || got[other] == nil || got[rbac] == nil {
		t.Errorf("when the server lists one of two: %v", got)
	}
}

// An automanaged APIService that this gateway has never claimed remains for unclaimedGrace, as another gateway may have
// created it from newer discovery, even if this gateway has claimed an earlier one of its name. One that it has claimed, elected or
// not, is deleted when its server does not list it any more.
func TestAPIServiceOfNewerDiscoveryRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const newer, never = "v1.newer.example.com", "v1.never.example.com"
		lists := append(widgets(), serving("newer.example.com", "v1")...)
		g := newRegistry(t, lists)
		g.leadership.set(ended())
		g.sync(t, nil)
		g.sync(t, nil)
		g.leadership.set(t.Context())
		g.serves("crd", widgets())
		if got := g.sync(t, nil); got[newer] != nil {
			t.Errorf("listed before: %v", got[newer])
		}
		for _, group := range []string{"newer.example.com", "never.example.com"} {
			if err := g.create(t.Context(), automanaged(discovery.GroupVersion{Group: group, Version: "v1"}, "crd", apiservice.Managed, 1000, 100)); err != nil {
				t.Fatal(err)
			}
		}
		created := g.sync(t, nil)[newer]
		again, err := g.write(t.Context())
		if err != nil || again != unclaimedGrace || created == nil {
			t.Fatalf("%v; writes again after %v (%v)", created, again, err)
		}
		g.serves("crd", lists)
		if got := g.sync(t, nil); got[never] == nil || got[newer] == nil || got[newer].UID != created.UID {
			t.Errorf("within the grace: %v, %v", got[never], got[newer])
		}
		time.Sleep(again)
		if got := g.sync(t, nil); got[never] != nil || got[newer] == nil {
			t.Errorf("after the grace: %v, %v", got[never], got[newer])
		}
	})
}

// Of what kube-apiserver left in etcd, an automanaged APIService that a Backend claims gets its
// annotation. Another is deleted once every Backend that may claim it is read; one that is managed
// at the start only, if it was there at the start. Those of users remain.
func TestAPIServicesOfAnotherServer(t *testing.T) {
	g := newRegistry(t, nil)
	upstreams := func(version, group, label string) string {
		a := automanaged(discovery.GroupVersion{Group: group, Version: version}, "", label, 1000, 100)
		delete(a.Annotations, apiservice.BackendAnnotation)
		if label == "" {
			a.Labels = nil
		}
		if err := g.create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		return a.Name
	}
	apps, alpha := upstreams("v1", "apps", apiservice.OnStart), upstreams("v1alpha1", "internal.apiserver.k8s.io", apiservice.OnStart)
	gone, mine := upstreams("v1", "gone.example.com", apiservice.Managed), upstreams("v1", "mine.example.com", "")
	if got := g.sync(t, nil); got[alpha] == nil || got[gone] == nil {
		t.Errorf("while the server is not read: %v", got)
	}
	g.serves("crd", serving("apps", "v1"))
	later := upstreams("v1alpha2", "internal.apiserver.k8s.io", apiservice.OnStart)
	got := g.sync(t, nil)
	if got[alpha] != nil || got[gone] != nil || got[mine] == nil || got[later] == nil {
		t.Errorf("once it is read: %v", got)
	}
	if a := got[apps]; a == nil || holder(a) != "crd" || a.Labels[apiservice.AutomanagedLabel] != apiservice.OnStart {
		t.Errorf("claimed is %+v", a)
	}
	if n := g.writes(func() { g.sync(t, nil) }); n != 0 {
		t.Errorf("%d writes without a difference", n)
	}
	g.atStart = nil // as a gateway that starts
	if got := g.sync(t, nil); got[later] != nil || got[mine] == nil {
		t.Errorf("after another start: %v", got)
	}
}

// A condition is written and counted when it changes.
func TestConditionIsWrittenOnChange(t *testing.T) {
	g := newRegistry(t, widgets())
	g.sync(t, nil)
	failed := apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: "refused"}
	conditions := map[string]apiservice.Condition{widget: failed, "v1.gone.example.com": failed}
	a := g.sync(t, conditions)[widget]
	if c, _ := apiservice.Current(a); !c.Agrees(failed) {
		t.Fatalf("condition %+v", c)
	}
	if n := g.writes(func() { g.sync(t, conditions) }); n != 0 {
		t.Errorf("an equal verdict was written %d times", n)
	}
	const gauge, total = "aggregator_unavailable_apiservice", "aggregator_unavailable_apiservice_total"
	if n := g.gauge(t, total); n[widget] != 1 {
		t.Errorf("counted %v", n)
	}
	if n := g.gauge(t, gauge); n[widget] != 1 || len(n) != 2 {
		t.Errorf("gauges %v", n)
	}
	conditions = map[string]apiservice.Condition{widget: apiservice.Local()}
	if c, _ := apiservice.Current(g.sync(t, conditions)[widget]); c != apiservice.Local() {
		t.Errorf("condition %+v", c)
	}
	if n := g.gauge(t, gauge); n[widget] != 0 || len(n) != 1 {
		t.Errorf("gauges %v, which must not have that of a removed APIService", n)
	}
}

// A message that always differs is written at once, then every messagePause, and the last one in the
// end; a change of the status is written at once.
func TestMessagesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRegistry(t, widgets())
		written := func(c apiservice.Condition) bool {
			return g.writes(func() { g.sync(t, map[string]apiservice.Condition{widget: c}) }) > 0
		}
		failed := func(i int) apiservice.Condition {
			return apiservice.FailedDiscoveryCheck("u", fmt.Errorf("error %d", i))
		}
		g.sync(t, nil)
		if !written(failed(0)) || !written(failed(1)) || written(failed(2)) {
			t.Fatal("the first message is not written, or a later one at once")
		}
		if !written(apiservice.Passed()) || !written(failed(3)) || written(failed(4)) {
			t.Error("a change of the status is delayed, or a message is not")
		}
		again, err := g.write(t.Context())
		if err != nil || again <= 0 || again > messagePause {
			t.Fatalf("the last message may be written after %v (%v)", again, err)
		}
		time.Sleep(again)
		if !written(failed(4)) {
			t.Error("the last message is not written")
		}
	})
}

// A gateway that is not elected creates each missing APIService once, and writes nothing else.
func TestRegisterWithoutElection(t *testing.T) {
	g := newRegistry(t, widgets())
	g.leadership.set(ended())
	if got := g.sync(t, nil); got[widget] == nil {
		t.Fatalf("not registered: %v", got)
	}
	failed := map[string]apiservice.Condition{widget: apiservice.FailedDiscoveryCheck("u", errRefused)}
	if now, _ := apiservice.Current(g.sync(t, failed)[widget]); !now.Available() {
		t.Errorf("it wrote a condition: %+v", now)
	}
	if _, err := g.services.Store.Delete(t.Context(), resource.Key{Name: widget}, nil); err != nil {
		t.Fatal(err)
	}
	if got := g.sync(t, failed); got[widget] != nil {
		t.Error("an APIService that another gateway removed was created again")
	}
	g.serves("crd", widgets()[1:])
	g.sync(t, nil)
	g.serves("crd", widgets())
	if got := g.sync(t, nil); got[widget] == nil {
		t.Error("a group/version that is served again is not registered")
	}
}
