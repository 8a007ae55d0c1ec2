package routing

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/lastgood"
)

// keeping is a Controller and what keeps what a backend "crd" says to it, without etcd.
type keeping struct {
	*lastgood.Keeper
	sync *Controller
}

func newKeeping(t *testing.T) *keeping {
	t.Helper()
	s := &Controller{log: slog.New(slog.DiscardHandler)}
	fakeBackend(t, s, "crd", sources.NewSource(sources.Config{}))
	keeper, err := lastgood.New(lastgood.Config{
		Now: func(context.Context) []lastgood.Document { return s.Kept() }, Gone: s.Gone, Logger: s.log,
		Restore: func(name string, data []byte) error { _, err := s.Restore(name, data); return err },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &keeping{keeper, s}
}

func (k *keeping) says(gvs []discovery.GroupVersion) {
	k.sync.says("crd", sources.NewSource(sources.Config{Previous: gvs}))
}

// What a server says is kept while it says nothing else, comes back as it was,
// and is replaced by what it says then.
func TestKeepAndRestore(t *testing.T) {
	said := append(customGroup("a.example.com"), discovery.GroupVersion{Group: "never.example.com", Version: "v1", Unknown: true})
	l := newKeeping(t)
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

	next := newKeeping(t)
	next.Restore(docs)
	got, ok := next.sync.servers["backend/crd"].Source.GroupVersions()
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
	l := newKeeping(t)
	l.says(customGroup("a.example.com"))
	good := l.Documents(t.Context())["backend/crd"]
	nameless, err := lastgood.Pack([]lastgood.Version{{Group: "a.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty": {}, "another format": append([]byte("9"), good[1:]...), "cut": good[:len(good)/2], "nameless": nameless,
	} {
		next := newKeeping(t)
		next.Restore(map[string][]byte{"backend/crd": data, "apiservice/v1.x": data, "core/services": data, "core/serviceaccounts": data, "core/secrets": data, "apiservice/v1.good": good})
		if _, ok := next.sync.servers["backend/crd"].Source.GroupVersions(); ok || next.sync.restoredVersions("apiservice/v1.x") != nil {
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
	l := newKeeping(t)
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
	l.sync.RestoreRegistrations(apiservices, backends)
	l.sync.SetAPIServices(apiservices)
	if docs := l.Documents(t.Context()); len(docs) != 6 {
		t.Errorf("before Backends are known: %v", docs)
	}
	l.sync.SetBackends(backends)
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

// Services that were named when they were kept resolve as they did; of others
// nobody can tell that they do not exist.
func TestRestoredServices(t *testing.T) {
	ref := func(name string) *apireg.ServiceReference {
		return &apireg.ServiceReference{Namespace: "ns", Name: name}
	}
	s := servicesForKeeping(t)
	list := []*apireg.APIService{{Spec: apireg.APIServiceSpec{Service: ref("api")}}, {Spec: apireg.APIServiceSpec{Service: ref("api")}}, {}, {Spec: apireg.APIServiceSpec{Service: ref("gone")}}}
	kept := s.named(&inputs{apiservices: list})
	if len(kept.Services) != 1 {
		t.Errorf("kept %v", kept.Services)
	}
	l := newKeeping(t)
	l.Restore(map[string][]byte{"core/services": packed(t, kept)})
	want, _ := s.resolve(ref("api"))
	got, failed := l.sync.in.services.resolve(ref("api"))
	if failed != nil || !reflect.DeepEqual(got, want) || len(got.list) == 0 {
		t.Errorf("resolved to %v (%v), want %v", got, failed, want)
	}
	if _, failed := l.sync.in.services.resolve(ref("unnamed")); failed == nil || failed.Reason != "ServiceAccessError" {
		t.Errorf("one that was not kept: %v", failed)
	}
	l.sync.resolveBy(s)
	l.Restore(map[string][]byte{"core/services": packed(t, lastgood.Services{})})
	if _, failed := l.sync.in.services.resolve(ref("api")); failed != nil {
		t.Errorf("what is followed was replaced by what was kept: %v", failed)
	}
}
