package registration

import (
	"context"
	"fmt"
	"testing"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/resource"
)

// ended is a term that has ended.
func ended() context.Context {
	term, end := context.WithCancel(context.Background())
	end()
	return term
}

// A gateway that is not elected creates what is new to it, once, and leaves the
// rest to the one that is.
func TestRegisterUnelected(t *testing.T) {
	g := newRegistry(t, widgets())
	g.leadership.take(ended())
	name := "v1.widgets.example.com"
	if got := g.turn(t, nil); got[name] == nil {
		t.Fatalf("not registered: %v", got)
	}
	failed := map[string]apiservice.Condition{name: {Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: "refused"}}
	if now, _ := apiservice.Current(g.turn(t, failed)[name]); !now.Available() {
		t.Errorf("it wrote a condition: %+v", now)
	}
	if _, err := g.services.Store.Delete(t.Context(), resource.Key{Name: name}, nil); err != nil {
		t.Fatal(err)
	}
	if got := g.turn(t, failed); got[name] != nil {
		t.Error("what another removed was created again")
	}
	g.says(widgets()[1:])
	g.turn(t, nil)
	g.says(widgets())
	if got := g.turn(t, nil); got[name] == nil {
		t.Error("what went and came again is not registered")
	}
}

// A message that is held back when the term of a gateway ends is nothing that it waits
// for.
func TestHeldBackAtTheEndOfATerm(t *testing.T) {
	g := newRegistry(t, widgets())
	name := "v1.widgets.example.com"
	term, lose := context.WithCancel(t.Context())
	g.leadership.take(term)
	for i := range 5 {
		g.turn(t, map[string]apiservice.Condition{name: apiservice.FailedDiscoveryCheck("u", fmt.Errorf("error %d", i))})
	}
	if g.paced.next(time.Now()) == nil {
		t.Fatal("nothing is held back")
	}
	lose()
	if err := g.write(t.Context()); err != nil || g.paced.next(time.Now()) != nil {
		t.Errorf("%v; it waits for something", err)
	}
}

func (g *registry) says(gvs []discovery.GroupVersion) {
	g.world.says("crd", sources.NewSource(sources.Config{Previous: gvs}))
}

// What was restored takes nothing away: it may be older than what is
// registered.
func TestRegisterAfterRestore(t *testing.T) {
	g := newRegistry(t, widgets())
	g.turn(t, nil)
	source := sources.NewSource(sources.Config{})
	source.Restore(widgets()[1:])
	g.world.says("crd", source)
	if got := g.turn(t, nil); got["v1.widgets.example.com"] == nil {
		t.Error("it is gone")
	}
}
