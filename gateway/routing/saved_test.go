package routing

import (
	"bytes"
	"context"
	"maps"
	"reflect"
	"slices"
	"testing"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/lastgood"
)

// saving is a Controller with a Backend "crd", and the Keeper of its documents.
type saving struct {
	*lastgood.Keeper
	sync *Controller
}

func newSaving(t *testing.T) *saving {
	t.Helper()
	s := newController(t)
	fakeBackend(t, s, "crd", sources.NewSource(sources.Config{}))
	keeper, err := lastgood.New(lastgood.Config{
		Current: func(context.Context) []lastgood.Document { return s.Saved() }, Gone: s.Gone, Logger: s.log,
		Restore: func(name string, data []byte) error { _, err := s.Restore(name, data); return err },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &saving{keeper, s}
}

// serves replaces what was read from the server of the Backend "crd".
func (k *saving) serves(gvs []discovery.GroupVersion) {
	k.sync.setSource("crd", sources.NewSource(sources.Config{Previous: gvs}))
}

func packed(t *testing.T, v any) []byte {
	t.Helper()
	data, err := lastgood.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The discovery of a server is saved when it changes, restored as it was, and replaced by
// what the server serves then.
func TestSaveAndRestore(t *testing.T) {
	t.Parallel()
	served := append(customGroup("a.example.com"), discovery.GroupVersion{Group: "never.example.com", Version: "v1", Unknown: true})
	k := newSaving(t)
	if docs := k.Documents(t.Context()); len(docs) != 0 {
		t.Errorf("saved before anything was read: %v", docs)
	}
	k.serves(served)
	docs := k.Documents(t.Context())
	k.serves(append(customGroup("a.example.com"), served[len(served)-1]))
	if again := k.Documents(t.Context()); &again["backend/crd"][0] != &docs["backend/crd"][0] {
		t.Error("equal discovery is another document")
	}

	next := newSaving(t)
	next.Restore(docs)
	srv := next.sync.servers["backend/crd"]
	next.sync.restoreServer(srv)
	got, ok := srv.Source.GroupVersions()
	if !ok || len(got) != 1 || !reflect.DeepEqual(got[0].Legacy, served[0].Legacy) || !reflect.DeepEqual(got[0].Aggregated, served[0].Aggregated) {
		t.Errorf("restored %+v, want %+v", got, served[:1])
	}
	if again := next.Documents(t.Context()); !bytes.Equal(again["backend/crd"], docs["backend/crd"]) {
		t.Error("the restored document is not kept")
	}
	next.serves(customGroup("b.example.com"))
	if again := next.Documents(t.Context()); bytes.Equal(again["backend/crd"], docs["backend/crd"]) {
		t.Error("the restored document is not replaced by what the server serves")
	}
}

// An invalid document is ignored, and no other one with it.
func TestRestoreInvalid(t *testing.T) {
	t.Parallel()
	k := newSaving(t)
	k.serves(customGroup("a.example.com"))
	good := k.Documents(t.Context())["backend/crd"]
	for name, data := range map[string][]byte{
		"empty": {}, "another format": append([]byte("9"), good[1:]...), "cut": good[:len(good)/2],
		"nameless": packed(t, serverDocument{Versions: []lastgood.Version{{Group: "a.example.com"}}}),
	} {
		next := newSaving(t)
		next.Restore(map[string][]byte{"backend/crd": data, "core/services": data, "core/serviceaccounts": data, "apiservice/v1.good": good})
		if next.sync.savedServer("backend/crd").versions != nil || next.sync.in.services != nil {
			t.Errorf("%s: restored", name)
		}
		if next.sync.savedServer("apiservice/v1.good").versions == nil {
			t.Errorf("%s: the valid document was not restored", name)
		}
	}
}

// The document of an APIService or Backend is deleted with it, once both kinds are known;
// other documents remain.
func TestDocumentsOfDeletedObjects(t *testing.T) {
	t.Parallel()
	k := newSaving(t)
	none := packed(t, serverDocument{})
	k.Restore(map[string][]byte{
		"apiservice/v1.gone": none, "apiservice/v1.there": none,
		"backend/gone": none, "backend/there": none, "backend/crd": none, "core/secrets": packed(t, lastgood.Identities{}),
	})
	apiservices := []*apireg.APIService{widgetsAt()}
	apiservices[0].Name = "v1.there"
	backends := []*backend.Backend{named("there", backend.Spec{})}
	k.sync.RestoreRegistrations(apiservices, backends)
	k.sync.SetAPIServices(apiservices)
	if docs := k.Documents(t.Context()); len(docs) != 6 {
		t.Errorf("before Backends are known: %v", docs)
	}
	k.sync.SetBackends(backends)
	docs := k.Documents(t.Context())
	if want := []string{"apiservice/v1.there", "backend/crd", "backend/there", "core/secrets"}; !slices.Equal(slices.Sorted(maps.Keys(docs)), want) {
		t.Errorf("remaining: %v", slices.Sorted(maps.Keys(docs)))
	}
}

// A Service that an APIService names resolves after a restart as before, until Services are
// read; of others it is unknown whether they exist.
func TestRestoredServices(t *testing.T) {
	t.Parallel()
	ref := func(name string) *apireg.ServiceReference {
		return &apireg.ServiceReference{Namespace: "ns", Name: name}
	}
	list := []*apireg.APIService{{Spec: apireg.APIServiceSpec{Service: ref("api")}}, {Spec: apireg.APIServiceSpec{Service: ref("api")}}, {}, {Spec: apireg.APIServiceSpec{Service: ref("gone")}}}
	k, next := newSaving(t), newSaving(t)
	s := servicesToSave(t)
	k.sync.setServices(s)
	k.sync.SetAPIServices(list)
	k.sync.SetBackends(nil)
	next.Restore(k.Documents(t.Context()))
	want, _ := s.resolve(ref("api"))
	got, failed := next.sync.in.services.resolve(ref("api"))
	if failed != nil || !reflect.DeepEqual(got, want) || len(got.list) == 0 {
		t.Errorf("resolved to %v (%v), want %v", got, failed, want)
	}
	for _, name := range []string{"unnamed", "gone"} {
		if _, failed := next.sync.in.services.resolve(ref(name)); failed == nil || failed.Reason != "ServiceAccessError" {
			t.Errorf("%s, which was not saved: %v", name, failed)
		}
	}
	next.sync.setServices(s)
	next.Restore(map[string][]byte{"core/services": packed(t, []savedAddresses{})})
	if _, failed := next.sync.in.services.resolve(ref("api")); failed != nil {
		t.Errorf("Services that were read are replaced by restored ones: %v", failed)
	}
}
