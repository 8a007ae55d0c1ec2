package routing

import (
	"cmp"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/lastgood"
	"portico/gateway/proxy"
	"portico/resource/loop"
)

// onService returns a Controller with the Service ns/api and with an APIService and Backends
// that name it.
func onService(t *testing.T, a *apireg.APIService, backends ...*backend.Backend) *Controller {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := &Controller{log: log, proxies: proxy.NewMaker(log), checker: availability.New(availability.Config{OnChange: func(string, availability.Verdict) {}})}
	s.SetServices(followed(t,
		service("api", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"})), loop.Snapshot{})
	s.SetAPIServices([]*apireg.APIService{a})
	s.SetBackends(backends)
	s.Reconcile()
	t.Cleanup(s.closeAll)
	return s
}

func widgetsAt(change func(*apireg.APIServiceSpec)) *apireg.APIService {
	a := &apireg.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.widgets.example.com"}, Spec: apireg.APIServiceSpec{
		Group: "widgets.example.com", Version: "v1", Service: &apireg.ServiceReference{Namespace: "ns", Name: "api"},
	}}
	change(&a.Spec)
	return a
}

func servedBy(name string, change func(*backend.Spec)) *backend.Backend {
	b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: backend.Spec{
		Service: &backend.Service{Namespace: "ns", Name: "api"}, Balance: backend.RoundRobin,
	}}
	change(&b.Spec)
	return b
}

// A Backend and an APIService that name the same Service share a server if they have the same
// trust; the policy is the Backend's either way.
func TestBackendOfTheSameService(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	other := httptest.NewTLSServer(nil)
	defer other.Close()
	port := int32(8443)
	nothing := func(*backend.Spec) {}
	insecure := func(s *apireg.APIServiceSpec) { s.InsecureSkipTLSVerify = true }
	vouched := func(s *apireg.APIServiceSpec) { s.CABundle = ca }
	for name, c := range map[string]struct {
		a       *apireg.APIService
		b       *backend.Backend
		one     bool
		balance backend.Balance
	}{
		"neither sets trust": {widgetsAt(func(*apireg.APIServiceSpec) {}), servedBy("b", nothing), true, backend.RoundRobin},
		"the APIService's":   {widgetsAt(vouched), servedBy("b", nothing), true, backend.RoundRobin},
		"both the same":      {widgetsAt(vouched), servedBy("b", func(s *backend.Spec) { s.TLS = &backend.TLS{CABundle: ca} }), true, backend.RoundRobin},
		"both insecure":      {widgetsAt(insecure), servedBy("b", func(s *backend.Spec) { s.TLS = &backend.TLS{InsecureSkipVerify: true} }), true, backend.RoundRobin},
		"different":          {widgetsAt(insecure), servedBy("b", func(s *backend.Spec) { s.TLS = &backend.TLS{CABundle: ca} }), false, backend.RoundRobin},
		"another name":       {widgetsAt(vouched), servedBy("b", func(s *backend.Spec) { s.TLS = &backend.TLS{CABundle: ca, ServerName: "x"} }), false, backend.RoundRobin},
		"another port":       {widgetsAt(vouched), servedBy("b", func(s *backend.Spec) { s.Service.Port = &port }), false, backend.LeastRequest},
	} {
		s := onService(t, c.a, c.b)
		up := s.table.Load().Lookup("widgets.example.com", "v1").Upstream
		st := s.backendStates.Load().ByName["b"]
		if (up == st.Server.Up) != c.one || up.Policy().Balance != c.balance || (len(s.servers) == 1) != c.one {
			t.Errorf("%s: one server: %v (of %d), balance %s", name, up == st.Server.Up, len(s.servers), up.Policy().Balance)
		}
	}
}

// The server of a REST Backend is not used for APIServices of the same Service; of several
// other Backends the first by name is.
func TestRESTBackendOfTheSameService(t *testing.T) {
	plain := servedBy("b", func(s *backend.Spec) { s.REST = &backend.REST{Group: "pets.example.com", Version: "v1"} })
	a := widgetsAt(func(*apireg.APIServiceSpec) {})
	s := onService(t, a, plain)
	r := s.table.Load().Lookup("widgets.example.com", "v1")
	if st := s.backendStates.Load().ByName["b"]; r.REST != nil || r.Upstream == st.Server.Up || r.Upstream.Policy().Balance != backend.RoundRobin {
		t.Errorf("it goes to the REST server (%v), balance %s", r.Upstream == st.Server.Up, r.Upstream.Policy().Balance)
	}
	s = onService(t, a, plain, servedBy("d", func(*backend.Spec) {}), servedBy("c", func(*backend.Spec) {}))
	if st := s.backendStates.Load().ByName["c"]; s.table.Load().Lookup("widgets.example.com", "v1").Upstream != st.Server.Up {
		t.Error("it does not go to the server of the other Backend")
	}
}

// The verdict on a server remains when its trust, its path or the number of its endpoints
// changes, until the changed checks end.
func TestVerdictsSurviveChanges(t *testing.T) {
	good := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := map[string]string{"/api": "APIVersions"}[r.URL.Path]
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1"}`, cmp.Or(kind, "APIGroupList"))
	}))
	defer good.Close()
	b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: backend.Spec{
		Endpoints: []backend.Endpoint{{URL: good.URL}}, TLS: &backend.TLS{InsecureSkipVerify: true, ClientCertificate: backend.NoneShown},
	}}
	s := onService(t, widgetsAt(func(*apireg.APIServiceSpec) {}), b)
	stop := s.startChecks(t)
	srv := s.servers["backend/b"]
	until(t, "healthy", func() bool { return s.Verdict(srv).Healthy })
	since := s.Verdict(srv).Since
	stop() // no verdict changes from now on
	for name, change := range map[string]func(*backend.Spec){
		"two endpoints": func(s *backend.Spec) { s.Endpoints = append(s.Endpoints, backend.Endpoint{URL: one}) },
		"and one again": func(s *backend.Spec) { s.Endpoints = s.Endpoints[:1] },
		"other trust":   func(s *backend.Spec) { s.TLS = &backend.TLS{InsecureSkipVerify: true} },
		"a path":        func(s *backend.Spec) { s.HealthCheck = &backend.HealthCheck{Path: "/readyz"} },
	} {
		b = b.DeepCopy()
		change(&b.Spec)
		s.SetBackends([]*backend.Backend{b})
		s.Reconcile()
		if v := s.Verdict(srv); s.servers["backend/b"] != srv || !v.Healthy || !v.Since.Equal(since) {
			t.Errorf("%s: %+v, another server: %v", name, v, s.servers["backend/b"] != srv)
		}
		if v := s.DiscoveryVerdict(srv); !v.Healthy {
			t.Errorf("%s: discovery: %+v", name, v)
		}
	}
}

// A server is not available if all endpoints have the weight 0; its discovery remains.
func TestAllDrained(t *testing.T) {
	first, second := startListing(t), startListing(t)
	b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: backend.Spec{
		Endpoints: []backend.Endpoint{{URL: first.URL}}, TLS: &backend.TLS{InsecureSkipVerify: true, ClientCertificate: backend.NoneShown},
	}}
	a := widgetsAt(func(*apireg.APIServiceSpec) {})
	a.Spec.Service, a.Annotations = nil, map[string]string{apiservice.BackendAnnotation: "b"}
	s := onService(t, a, b)
	stop := s.startChecks(t)
	set := func(endpoints ...backend.Endpoint) {
		b = b.DeepCopy()
		b.Spec.Endpoints = endpoints
		s.SetBackends([]*backend.Backend{b})
		s.Reconcile()
	}
	shows := func(condition, apiServices apiservice.Condition) {
		t.Helper()
		until(t, condition.Reason, func() bool {
			s.Reconcile()
			return s.BackendStates().List[0].Condition == condition && s.table.Load().Lookup("widgets.example.com", "v1").Condition == apiServices
		})
	}
	passes := func() { t.Helper(); shows(apiservice.Passed(), apiservice.Local()) }
	drains := func() { t.Helper(); shows(apiservice.AllDrained(), apiservice.AllDrained()) }
	passes()
	none := int32(0)
	set(backend.Endpoint{URL: first.URL, Weight: &none})
	drains()
	if v := s.DiscoveryVerdict(s.servers["backend/b"]); !v.Healthy {
		t.Errorf("what it serves can be read: %+v", v)
	}
	set(backend.Endpoint{URL: first.URL, Weight: &none}, backend.Endpoint{URL: second.URL})
	passes()
	set(backend.Endpoint{URL: first.URL, Weight: &none}, backend.Endpoint{URL: second.URL, Weight: &none})
	drains()
	set(backend.Endpoint{URL: first.URL}, backend.Endpoint{URL: second.URL, Weight: &none})
	passes()
	stop()
}

// A server at another address is unchecked, and has no error of the former address.
func TestVerdictsAreOfTheirEndpoints(t *testing.T) {
	there, elsewhere := startListing(t), startListing(t)
	there.Close()
	b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: backend.Spec{
		Endpoints: []backend.Endpoint{{URL: there.URL}}, TLS: &backend.TLS{InsecureSkipVerify: true, ClientCertificate: backend.NoneShown},
	}}
	s := onService(t, widgetsAt(func(*apireg.APIServiceSpec) {}), b)
	stop := s.startChecks(t)
	until(t, "it is down", func() bool {
		s.Reconcile()
		return s.BackendStates().List[0].Condition.Reason == "FailedDiscoveryCheck"
	})
	stop() // no verdict changes from now on
	for _, at := range [][]backend.Endpoint{{{URL: elsewhere.URL}}, {{URL: elsewhere.URL}, {URL: one}}, {{URL: two}}} {
		b = b.DeepCopy()
		b.Spec.Endpoints = at
		s.SetBackends([]*backend.Backend{b})
		s.Reconcile()
		if st := s.BackendStates().List[0]; st.Condition != Unchecked() {
			t.Errorf("at %+v: %+v", at, st.Condition)
		}
	}
}

// A Backend with the name of a deleted one has nothing of its restored discovery, whether or
// not its server was read since.
func TestRestoredDiscoveryIsDeletedWithTheBackend(t *testing.T) {
	for _, read := range []bool{false, true} {
		b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: backend.Spec{Endpoints: []backend.Endpoint{{URL: one}}}}
		s := onService(t, widgetsAt(func(*apireg.APIServiceSpec) {}), b)
		if _, err := s.Restore("backend/b", packed(t, serverDocument{Versions: lastgood.Versions(widgets())})); err != nil {
			t.Fatal(err)
		}
		s.Reconcile()
		srv := s.servers["backend/b"]
		if gvs, _ := srv.Source.GroupVersions(); len(gvs) != len(widgets()) {
			t.Fatalf("restored %v", gvs)
		}
		if s.savedServer("backend/b").versions == nil {
			t.Error("forgotten before the server is read")
		}
		if read {
			s.setSource("b", sources.NewSource(sources.Config{Previous: widgets()}))
			s.Reconcile()
		}
		s.SetBackends(nil)
		s.Reconcile()
		s.SetBackends([]*backend.Backend{b})
		s.Reconcile()
		if gvs, known := s.servers["backend/b"].Source.GroupVersions(); known {
			t.Errorf("read %v: the new one has %v", read, gvs)
		}
	}
}

// A change of the policy, the endpoints or the trust keeps the server; another object of the
// same name is another server, without the discovery of the former.
func TestBackendChanges(t *testing.T) {
	b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: backend.Spec{Endpoints: []backend.Endpoint{{URL: one}, {URL: two}}}}
	a := widgetsAt(func(s *apireg.APIServiceSpec) { s.Service = nil })
	a.Annotations = map[string]string{apiservice.BackendAnnotation: "b"}
	s := onService(t, a, b)
	before := s.servers["backend/b"]
	if s.table.Load().Lookup("widgets.example.com", "v1").Upstream != before.Up {
		t.Fatal("there is no route to it")
	}
	set := func(change func(*backend.Spec)) *Server {
		b = b.DeepCopy()
		change(&b.Spec)
		s.SetBackends([]*backend.Backend{b})
		s.Reconcile()
		return s.servers["backend/b"]
	}
	none := int32(0)
	after := set(func(s *backend.Spec) {
		s.Balance = backend.ConsistentHash
		s.Endpoints = []backend.Endpoint{{URL: two, Weight: &none}, {URL: "unix:///three"}}
	})
	if es := after.Up.Endpoints(); after != before || after.Up.Policy().Balance != backend.ConsistentHash || len(es) != 2 || es[0].Weight != 0 || es[1].Network != "unix" {
		t.Errorf("it is another server, or at %+v with %+v", es, after.Up.Policy())
	}
	if again := set(func(s *backend.Spec) { s.TLS = &backend.TLS{ServerName: "x"} }); again != before {
		t.Error("another name is another server")
	}
	if again := set(func(s *backend.Spec) { s.Endpoints = s.Endpoints[:1] }); again != before || again.Up.Base().Scheme != again.Up.Endpoints()[0].Base.Scheme {
		t.Error("with one endpoint it is another server, or addressed otherwise")
	}
	b.UID = "first"
	if again := set(func(*backend.Spec) {}); again != before {
		t.Error("it is another server, although its object was only stored")
	}
	before.Source.Restore(widgets())
	b.UID = "second"
	again := set(func(*backend.Spec) {})
	if again == before {
		t.Error("another object is the same server")
	}
	if gvs, known := again.Source.GroupVersions(); known {
		t.Errorf("it knows %v", gvs)
	}
	s.SetBackends(nil)
	s.Reconcile()
	if rt := s.table.Load().Lookup("widgets.example.com", "v1"); len(s.servers) != 0 || rt == nil || rt.Upstream != nil || rt.Unavailable() == nil {
		t.Error("a Backend that is gone has a server, or requests for it do not say so")
	}
	b.Spec.Endpoints = []backend.Endpoint{{URL: "nonsense"}}
	s.SetBackends([]*backend.Backend{b})
	s.Reconcile()
	if st := s.backendStates.Load().ByName["b"]; st.Condition.Available() || st.Server != nil {
		t.Errorf("a URL that cannot be read: %+v", st)
	}
}

// wanting is a source that records the group/versions that are wanted.
type wanting struct {
	*sources.Source
	wants []schema.GroupVersion
}

func (w *wanting) Want(gvs []schema.GroupVersion) { w.wants = gvs }

// The group/versions of users' APIServices are wanted from the server, listed or not; those
// of automanaged ones are not.
func TestWantedGroupVersions(t *testing.T) {
	s := onService(t, widgetsAt(func(*apireg.APIServiceSpec) {}))
	source := &wanting{Source: sources.NewSource(sources.Config{Previous: widgets()})}
	fakeBackend(t, s, "custom", source)
	own := custom(discovery.GroupVersion{Group: "hidden.example.com", Version: "v1"}, "custom")
	own.Labels = nil
	s.SetAPIServices([]*apireg.APIService{custom(widgets()[0], "custom"), own})
	s.Reconcile()
	if want := (schema.GroupVersion{Group: "hidden.example.com", Version: "v1"}); !slices.Equal(source.wants, []schema.GroupVersion{want}) {
		t.Errorf("wanted are %v, not %v", source.wants, want)
	}
	s.SetAPIServices([]*apireg.APIService{custom(widgets()[0], "custom")})
	s.Reconcile()
	if len(source.wants) > 0 {
		t.Errorf("still wanted are %v", source.wants)
	}
}

// noAddress removes all addresses of the Service.
func (s *Controller) noAddress(t *testing.T) {
	t.Helper()
	s.SetServices(
		followed(t, service("api", corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}})),
		followed(t, endpointSlice("api-1", "api", "https", 8443)))
	s.Reconcile()
}

// entryOf is the discovery of an APIService.
func (s *Controller) entryOf(a *apireg.APIService) discovery.GroupVersion {
	n := s.snapshot()
	r := newReconcile(s, &n)
	r.backendStates = s.BackendStates()
	return r.entry(a, r.resolve(a))
}

// A Backend without addresses is Stale in its status when it is in discovery.
func TestStaleWithoutAddresses(t *testing.T) {
	a := custom(customGroup("a.example.com")[0], "crd")
	s := onService(t, a, servedBy("crd", func(*backend.Spec) {}))
	s.setSource("crd", sources.NewSource(sources.Config{Previous: customGroup("a.example.com")}))
	s.Reconcile()
	for _, grace := range []time.Duration{time.Hour, time.Nanosecond} {
		s.grace = grace
		s.noAddress(t)
		time.Sleep(time.Millisecond)
		s.Reconcile()
		if inStatus, inDiscovery := s.BackendStates().ByName["crd"].Stale, s.entryOf(a).Stale; inStatus != (grace < time.Hour) || inDiscovery != inStatus {
			t.Errorf("grace %v: stale in status %v, in discovery %v", grace, inStatus, inDiscovery)
		}
	}
}

// Restored discovery is served while the Service has no addresses, for an APIService and for a
// Backend.
func TestRestoredWithoutAddresses(t *testing.T) {
	served := customGroup("a.example.com")
	named := custom(served[0], "")
	named.Labels, named.Annotations = nil, nil
	named.Spec.Service = &apireg.ServiceReference{Namespace: "ns", Name: "api"}
	for target, c := range map[string]struct {
		a *apireg.APIService
		b []*backend.Backend
	}{
		"apiservice/" + named.Name: {named, nil},
		"backend/crd":              {custom(served[0], "crd"), []*backend.Backend{servedBy("crd", func(*backend.Spec) {})}},
	} {
		s := onService(t, widgetsAt(func(*apireg.APIServiceSpec) {}))
		s.SetServices(loop.Snapshot{}, loop.Snapshot{})
		s.SetBackends(c.b)
		if ours, err := s.Restore(target, packed(t, serverDocument{Versions: lastgood.Versions(served)})); !ours || err != nil {
			t.Fatal(ours, err)
		}
		s.SetAPIServices([]*apireg.APIService{c.a})
		s.noAddress(t)
		if e := s.entryOf(c.a); e.Unknown || e.Aggregated == nil {
			t.Errorf("%s: its discovery is not known", target)
		}
	}
}
