package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/aggregate"
	"portico/gateway/lastgood"
	"portico/resource"
)

// newLastGood is one that keeps what a backend "crd" says, without etcd.
func newLastGood(t *testing.T) *lastGood {
	t.Helper()
	s := &syncer{log: slog.New(slog.DiscardHandler)}
	fakeBackend(t, s, "crd", aggregate.NewSource(aggregate.Config{}))
	l := &lastGood{log: s.log, sync: s, core: newCoreClient(s)}
	if err := l.keep(nil, ""); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lastGood) says(gvs []discovery.GroupVersion) {
	l.sync.says("crd", aggregate.NewSource(aggregate.Config{Previous: gvs}))
}

// What a server says is kept while it says nothing else, comes back as it was,
// and is replaced by what it says then.
func TestKeepAndRestore(t *testing.T) {
	said := append(customGroup("a.example.com"), discovery.GroupVersion{Group: "never.example.com", Version: "v1", Unknown: true})
	l := newLastGood(t)
	if docs := l.Documents(t.Context()); len(docs) != 0 {
		t.Errorf("kept of what was never heard: %v", docs)
	}
	l.says(said)
	docs := l.Documents(t.Context())
	if again := l.Documents(t.Context()); &again["backend/crd"][0] != &docs["backend/crd"][0] {
		t.Error("packed again although nothing changed")
	}
	l.says(append(customGroup("a.example.com"), said[len(said)-1]))
	if again := l.Documents(t.Context()); &again["backend/crd"][0] != &docs["backend/crd"][0] {
		t.Error("the same said again is another document")
	}

	next := newLastGood(t)
	next.Restore(docs)
	got, ok := next.sync.servers["backend/crd"].source.GroupVersions()
	if !ok || len(got) != 1 || !reflect.DeepEqual(got[0].Legacy, said[0].Legacy) || !reflect.DeepEqual(got[0].Aggregated, said[0].Aggregated) {
		t.Errorf("restored %+v, want %+v", got, said[:1])
	}
	if kept := next.Documents(t.Context()); !bytes.Equal(kept["backend/crd"], docs["backend/crd"]) {
		t.Error("what was restored is not kept on")
	}
	next.says(customGroup("b.example.com"))
	if kept := next.Documents(t.Context()); bytes.Equal(kept["backend/crd"], docs["backend/crd"]) {
		t.Error("what the server said did not replace what was restored")
	}
}

// A broken document is left out, and costs no other.
func TestRestoreBroken(t *testing.T) {
	l := newLastGood(t)
	l.says(customGroup("a.example.com"))
	good := l.Documents(t.Context())["backend/crd"]
	nameless, err := lastgood.Pack([]lastgood.Version{{Group: "a.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty": {}, "another format": append([]byte("9"), good[1:]...), "cut": good[:len(good)/2], "nameless": nameless,
	} {
		next := newLastGood(t)
		next.Restore(map[string][]byte{"backend/crd": data, "apiservice/v1.x": data, "core/services": data, "core/serviceaccounts": data, "core/secrets": data, "apiservice/v1.good": good})
		if _, ok := next.sync.servers["backend/crd"].source.GroupVersions(); ok || next.sync.restoredVersions("apiservice/v1.x") != nil {
			t.Errorf("%s: restored", name)
		}
		if next.sync.restoredVersions("apiservice/v1.good") == nil {
			t.Errorf("%s: the good one was not restored", name)
		}
	}
}

// The documents of APIServices and Backends go with them, once it is known which
// there are; those of others do not.
func TestForget(t *testing.T) {
	l := newLastGood(t)
	none := packed(t, []lastgood.Version{})
	l.Restore(map[string][]byte{
		"apiservice/v1.gone": none, "apiservice/v1.there": none,
		"backend/gone": none, "backend/there": none, "backend/crd": none, "core/secrets": packed(t, lastgood.Identities{}),
	})
	if docs := l.Documents(t.Context()); len(docs) != 6 {
		t.Errorf("before anything is known: %v", docs)
	}
	apiservices := []*apireg.APIService{{ObjectMeta: metav1.ObjectMeta{Name: "v1.there"}, Spec: apireg.APIServiceSpec{Service: &apireg.ServiceReference{}}}}
	backends := []*backend.Backend{{ObjectMeta: metav1.ObjectMeta{Name: "there"}}}
	l.sync.restoreRegistrations(apiservices, backends)
	l.sync.setAPIServices(apiservices)
	if docs := l.Documents(t.Context()); len(docs) != 6 {
		t.Errorf("before Backends are known: %v", docs)
	}
	l.sync.setBackends(backends)
	docs := l.Documents(t.Context())
	if want := []string{"apiservice/v1.there", "backend/crd", "backend/there", "core/secrets"}; !slices.Equal(slices.Sorted(maps.Keys(docs)), want) {
		t.Errorf("left are %v", slices.Sorted(maps.Keys(docs)))
	}
}

func packed(t *testing.T, v any) []byte {
	t.Helper()
	data, err := lastgood.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestBoundSecrets(t *testing.T) {
	var b boundSecrets
	key := func(i int) resource.Key { return resource.Key{Namespace: "a", Name: fmt.Sprint(i)} }
	for i := range maxSecrets + 10 {
		b.set(key(i), "u")
	}
	if kept := b.kept(); len(kept["a"]) != maxSecrets {
		t.Errorf("%d are remembered, the bound is %d", len(kept["a"]), maxSecrets)
	}
	last := key(maxSecrets + 9)
	if uid, ok := b.get(last); !ok || uid != "u" {
		t.Error("the latest is not remembered")
	}
	before := b.changes()
	b.set(last, "u")
	if b.changes() != before {
		t.Error("nothing changed and counts as a change")
	}
	b.set(last, "")
	if _, ok := b.get(last); ok {
		t.Error("a secret that is gone is remembered")
	}
	var next boundSecrets
	next.set(key(1), "newer")
	next.restore(lastgood.Identities{"a": {"1": "old", "2": "u"}})
	one, _ := next.get(key(1))
	two, _ := next.get(key(2))
	if one != "newer" || two != "u" {
		t.Errorf("restored %q and %q", one, two)
	}
}

// Accounts that are known from before are good while the core server cannot be
// asked; of others nobody knows.
func TestRestoredAccounts(t *testing.T) {
	l := newLastGood(t)
	l.Restore(map[string][]byte{
		"core/serviceaccounts": packed(t, lastgood.Identities{"default": {"reader": "u1"}}),
		"core/secrets":         packed(t, lastgood.Identities{"default": {"key": "u2"}}),
	})
	ctx := context.Background()
	if uid, found, err := l.core.lookupServiceAccount(ctx, "default", "reader"); uid != "u1" || !found || err != nil {
		t.Errorf("a known account: %q %v %v", uid, found, err)
	}
	if _, found, err := l.core.lookupServiceAccount(ctx, "default", "other"); found || err == nil {
		t.Errorf("an unknown account: %v %v", found, err)
	}
	if uid, found, err := l.core.lookupBound(ctx, "Secret", "default", "key"); uid != "u2" || !found || err != nil {
		t.Errorf("a known secret: %q %v %v", uid, found, err)
	}
	if _, found, err := l.core.lookupBound(ctx, "Secret", "default", "other"); found || err == nil {
		t.Errorf("an unknown secret: %v %v", found, err)
	}
}

// Services that were named when they were kept resolve as they did; of others
// nobody can tell that they do not exist.
func TestRestoredServices(t *testing.T) {
	ref := func(name string) *apireg.ServiceReference {
		return &apireg.ServiceReference{Namespace: "ns", Name: name}
	}
	s := servicesForKeeping(t)
	list := []*apireg.APIService{{Spec: apireg.APIServiceSpec{Service: ref("api")}}, {Spec: apireg.APIServiceSpec{Service: ref("api")}}, {}, {Spec: apireg.APIServiceSpec{Service: ref("gone")}}}
	kept := s.named(&news{apiservices: list})
	if len(kept.Services) != 1 {
		t.Errorf("kept %v", kept.Services)
	}
	l := newLastGood(t)
	l.Restore(map[string][]byte{"core/services": packed(t, kept)})
	want, _ := s.resolve(ref("api"))
	got, failed := l.sync.news.services.resolve(ref("api"))
	if failed != nil || !reflect.DeepEqual(got, want) || len(got) == 0 {
		t.Errorf("resolved to %v (%v), want %v", got, failed, want)
	}
	if _, failed := l.sync.news.services.resolve(ref("unnamed")); failed == nil || failed.Reason != "ServiceAccessError" {
		t.Errorf("one that was not kept: %v", failed)
	}
	l.sync.setServices(s)
	l.Restore(map[string][]byte{"core/services": packed(t, lastgood.Services{})})
	if _, failed := l.sync.news.services.resolve(ref("api")); failed != nil {
		t.Errorf("what is followed was replaced by what was kept: %v", failed)
	}
}

// A gateway that is not elected creates what is new to it, once, and leaves the
// rest to the one that is.
func TestRegisterUnelected(t *testing.T) {
	g := newRegistry(t, widgets())
	g.elected.Store(false)
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

func (g *registry) says(gvs []discovery.GroupVersion) {
	g.sync.says("crd", aggregate.NewSource(aggregate.Config{Previous: gvs}))
}

// What was restored takes nothing away: it may be older than what is
// registered.
func TestRegisterAfterRestore(t *testing.T) {
	g := newRegistry(t, widgets())
	g.turn(t, nil)
	source := aggregate.NewSource(aggregate.Config{})
	source.Restore(widgets()[1:])
	g.sync.says("crd", source)
	if got := g.turn(t, nil); got["v1.widgets.example.com"] == nil {
		t.Error("it is gone")
	}
}
