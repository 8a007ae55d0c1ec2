package routing

import (
	"cmp"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/lastgood"
	"portico/gateway/upstream"
	"portico/internal/testing/await"
	"portico/resource/loop"
)

// A Backend and an APIService that name the same Service share a server if they have the same
// trust; the policy is the Backend's either way.
func TestBackendOfTheSameService(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	trusts := func(ca []byte, name string) *backend.Backend {
		return servedBy("b", func(s *backend.Spec) { s.TLS = &backend.TLS{CABundle: ca, ServerName: name} })
	}
	insecure := func(s *apireg.APIServiceSpec) { s.InsecureSkipTLSVerify = true }
	vouched := func(s *apireg.APIServiceSpec) { s.CABundle = ca }
	for name, c := range map[string]struct {
		a       *apireg.APIService
		b       *backend.Backend
		one     bool
		balance backend.Balance
	}{
		"neither sets trust": {widgetsAt(), servedBy("b"), true, backend.RoundRobin},
		"the APIService's":   {widgetsAt(vouched), servedBy("b"), true, backend.RoundRobin},
		"both the same":      {widgetsAt(vouched), trusts(ca, ""), true, backend.RoundRobin},
		"both insecure":      {widgetsAt(insecure), servedBy("b", func(s *backend.Spec) { s.TLS = &backend.TLS{InsecureSkipVerify: true} }), true, backend.RoundRobin},
		"different":          {widgetsAt(insecure), trusts(ca, ""), false, backend.RoundRobin},
		"another name":       {widgetsAt(vouched), trusts(ca, "x"), false, backend.RoundRobin},
		"another port":       {widgetsAt(vouched), servedBy("b", func(s *backend.Spec) { s.Service.Port = new(int32(8443)) }), false, backend.LeastRequest},
	} {
		s := onService(t, c.a, c.b)
		up := s.routeOf(widgetsGroup).Upstream
		st := s.BackendStates().ByName["b"]
		if (up == st.Server.Up) != c.one || up.Policy().Balance != c.balance || (len(s.servers) == 1) != c.one {
			t.Errorf("%s: one server: %v (of %d), balance %s", name, up == st.Server.Up, len(s.servers), up.Policy().Balance)
		}
	}
}

// The server of a REST Backend is not used for APIServices of the same Service; of several
// other Backends the first by name is.
func TestRESTBackendOfTheSameService(t *testing.T) {
	t.Parallel()
	plain := servedBy("b", func(s *backend.Spec) { s.REST = &backend.REST{Group: "pets.example.com", Version: "v1"} })
	a := widgetsAt()
	s := onService(t, a, plain)
	r := s.routeOf(widgetsGroup)
	if st := s.BackendStates().ByName["b"]; r.REST != nil || r.Upstream == st.Server.Up || r.Upstream.Policy().Balance != backend.RoundRobin {
		t.Errorf("it goes to the REST server (%v), balance %s", r.Upstream == st.Server.Up, r.Upstream.Policy().Balance)
	}
	s = onService(t, a, plain, servedBy("d"), servedBy("c"))
	if st := s.BackendStates().ByName["c"]; s.routeOf(widgetsGroup).Upstream != st.Server.Up {
		t.Error("it does not go to the server of the other Backend")
	}
}

// A Backend of the gateway's flags has an endpoint for each URL; what its URLs must be is said
// about the one that is not.
func TestURLsOfStaticBackends(t *testing.T) {
	t.Parallel()
	for urls, want := range map[string]string{
		"https://core-0:7443,https://core-1:7443":  "",
		"unix:///run/core-0.sock,unix:///run/1":    "",
		"https://core-0:7443,":                     `URL "" must be https://host:port`,
		"https://core-0:7443,http://core-1:7443":   `URL "http://core-1:7443" must be https or a unix socket`,
		"https://core-0:7443,unix:///run/core":     `URL "unix:///run/core" must be https like the one before`,
		"https://core-0:443,https://core-0":        `URL "https://core-0" is there twice`,
		"https://core-0:7443,https://core-1 :7443": `URL "https://core-1 :7443" must be a URL`,
	} {
		list := strings.Split(urls, ",")
		c, err := NewStaticBackend(Backend{Name: "core", URLs: list}, upstream.Trust{})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), "backend core: "+want) {
				t.Errorf("%s: %v, want %q", urls, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", urls, err)
			continue
		}
		var got []string
		for _, e := range c.Spec().Endpoints {
			got = append(got, e.URL)
		}
		if check := c.Spec().HealthCheck; !slices.Equal(got, list) || check == nil || !strings.HasPrefix(check.Path, "/readyz?") {
			t.Errorf("%s: endpoints %v, checked by %v", urls, got, check)
		}
	}
}

// The verdict on a server remains when its trust, its path or the number of its endpoints
// changes, until the changed checks end.
func TestVerdictsSurviveChanges(t *testing.T) {
	t.Parallel()
	good := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := map[string]string{"/api": "APIVersions"}[r.URL.Path]
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1"}`, cmp.Or(kind, "APIGroupList"))
	}))
	defer good.Close()
	b := backendAt(good.URL)
	s := onService(t, widgetsAt(), b)
	stop := s.startChecks(t)
	srv := s.servers["backend/b"]
	await.Until(t, "healthy", func() bool { return s.Verdict(srv).Healthy })
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
		s.store(b)
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
	t.Parallel()
	first, second := startListing(t), startListing(t)
	b := backendAt(first.URL)
	s := onService(t, userAPIService(widgetsGroup, "v1", "b"), b)
	s.startChecks(t)
	set := func(endpoints ...backend.Endpoint) {
		b = b.DeepCopy()
		b.Spec.Endpoints = endpoints
		s.store(b)
	}
	shows := func(condition, apiServices apiservice.Condition) {
		t.Helper()
		await.Until(t, condition.Reason, func() bool {
			s.Reconcile()
			return s.BackendStates().List[0].Condition == condition && s.routeOf(widgetsGroup).Condition == apiServices
		})
	}
	passes := func() { t.Helper(); shows(apiservice.Passed(), apiservice.Local()) }
	drains := func() { t.Helper(); shows(apiservice.AllDrained(), apiservice.AllDrained()) }
	passes()
	none := new(int32)
	set(backend.Endpoint{URL: first.URL, Weight: none})
	drains()
	if v := s.DiscoveryVerdict(s.servers["backend/b"]); !v.Healthy {
		t.Errorf("what it serves can be read: %+v", v)
	}
	set(backend.Endpoint{URL: first.URL, Weight: none}, backend.Endpoint{URL: second.URL})
	passes()
	set(backend.Endpoint{URL: first.URL, Weight: none}, backend.Endpoint{URL: second.URL, Weight: none})
	drains()
	set(backend.Endpoint{URL: first.URL}, backend.Endpoint{URL: second.URL, Weight: none})
	passes()
}

// A server at another address is unchecked, and has no error of the former address.
func TestVerdictsAreOfTheirEndpoints(t *testing.T) {
	t.Parallel()
	there, elsewhere := startListing(t), startListing(t)
	there.Close()
	b := backendAt(there.URL)
	s := onService(t, widgetsAt(), b)
	stop := s.startChecks(t)
	await.Until(t, "it is down", func() bool {
		s.Reconcile()
		return s.BackendStates().List[0].Condition.Reason == "FailedDiscoveryCheck"
	})
	stop() // no verdict changes from now on
	for _, at := range [][]backend.Endpoint{{{URL: elsewhere.URL}}, {{URL: elsewhere.URL}, {URL: one}}, {{URL: two}}} {
		b = b.DeepCopy()
		b.Spec.Endpoints = at
		s.store(b)
		if st := s.BackendStates().List[0]; st.Condition != Unchecked() {
			t.Errorf("at %+v: %+v", at, st.Condition)
		}
	}
}

// A Backend with the name of a deleted one has nothing of its restored discovery, whether or
// not its server was read since.
func TestRestoredDiscoveryIsDeletedWithTheBackend(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{false, true} {
		b := backendAt(one)
		s := onService(t, widgetsAt(), b)
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
		s.store()
		s.store(b)
		if gvs, known := s.servers["backend/b"].Source.GroupVersions(); known {
			t.Errorf("read %v: the new one has %v", read, gvs)
		}
	}
}

// A change of the policy, the endpoints or the trust keeps the server; another object of the
// same name is another server, without the discovery of the former.
func TestBackendChanges(t *testing.T) {
	t.Parallel()
	b := named("b", backend.Spec{Endpoints: []backend.Endpoint{{URL: one}, {URL: two}}})
	s := onService(t, userAPIService(widgetsGroup, "v1", "b"), b)
	before := s.servers["backend/b"]
	if s.routeOf(widgetsGroup).Upstream != before.Up {
		t.Fatal("there is no route to it")
	}
	set := func(change func(*backend.Spec)) *Server {
		b = b.DeepCopy()
		change(&b.Spec)
		s.store(b)
		return s.servers["backend/b"]
	}
	none := new(int32)
	after := set(func(s *backend.Spec) {
		s.Balance = backend.ConsistentHash
		s.Endpoints = []backend.Endpoint{{URL: two, Weight: none}, {URL: "unix:///three"}}
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
	s.store()
	if rt := s.routeOf(widgetsGroup); len(s.servers) != 0 || rt == nil || rt.Upstream != nil || rt.Unavailable() == nil {
		t.Error("a Backend that is gone has a server, or requests for it do not say so")
	}
	b.Spec.Endpoints = []backend.Endpoint{{URL: "nonsense"}}
	s.store(b)
	if st := s.BackendStates().ByName["b"]; st.Condition.Available() || st.Server != nil {
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
	t.Parallel()
	s := newController(t)
	s.SetBackends(nil)
	source := &wanting{Source: sources.NewSource(sources.Config{Previous: widgets()})}
	fakeBackend(t, s, "custom", source)
	s.SetAPIServices([]*apireg.APIService{custom(widgetsGroup, "custom"), userAPIService("hidden.example.com", "v1", "custom")})
	s.Reconcile()
	if want := (schema.GroupVersion{Group: "hidden.example.com", Version: "v1"}); !slices.Equal(source.wants, []schema.GroupVersion{want}) {
		t.Errorf("wanted are %v, not %v", source.wants, want)
	}
	s.SetAPIServices([]*apireg.APIService{custom(widgetsGroup, "custom")})
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
	t.Parallel()
	a := custom("a.example.com", "crd")
	s := onService(t, a, servedBy("crd"))
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
	t.Parallel()
	served := customGroup("a.example.com")
	direct := userAPIService("a.example.com", "v1", "")
	direct.Spec.Service = widgetsAt().Spec.Service
	for target, c := range map[string]struct {
		a *apireg.APIService
		b []*backend.Backend
	}{
		"apiservice/" + direct.Name: {direct, nil},
		"backend/crd":               {custom("a.example.com", "crd"), []*backend.Backend{servedBy("crd")}},
	} {
		s := onService(t, widgetsAt())
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

// Messages have the real address of a server, or none: the host of requests to it is the
// name of its Backend.
func TestMessagesHaveNoMadeUpAddress(t *testing.T) {
	t.Parallel()
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	first, second := httptest.NewTLSServer(fails), httptest.NewTLSServer(fails)
	defer first.Close()
	defer second.Close()
	var all []*backend.Backend
	for i := range 4 {
		b := backendAt([]string{first.URL, second.URL}[:i%2+1]...)
		if b.Name = fmt.Sprint("m", i+1); i > 1 {
			b.Spec.REST = &backend.REST{Group: "shop.example.com", Version: b.Name}
		}
		all = append(all, b)
	}
	s := onService(t, userAPIService(widgetsGroup, "v1", ""), all...)
	s.startChecks(t)
	for name, want := range map[string]string{
		"m1": "from " + first.URL + "/apis: bad status from /api: 500", "m2": "any endpoint of m2: bad status from /api: 500",
		"m3": "from " + first.URL + "/openapi.json: bad status from /openapi.json: 500", "m4": "any endpoint of m4: bad status from /openapi.json: 500",
	} {
		var text string
		await.Until(t, name+": its discovery was read", func() bool {
			s.Reconcile()
			st := s.BackendStates().ByName[name]
			v := s.DiscoveryVerdict(st.Server)
			if v.Known {
				text = apiservice.FailedDiscoveryCheck(st.CheckURL, v.Err).Message
			}
			return v.Known
		})
		if !strings.Contains(text, want) || strings.Contains(text, "https://m") {
			t.Errorf("%s: %q, want one with %q", name, text, want)
		}
		if up := s.BackendStates().ByName[name].Condition.Message; strings.Contains(up, "https://m") {
			t.Errorf("%s: %q", name, up)
		}
	}
}
