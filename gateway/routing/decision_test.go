package routing

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/internal/testing/await"
)

// A user's APIService for another version of a group of the gateway has the condition
// GroupReserved and no route, also with a Service.
func TestOtherVersionsOfOwnGroups(t *testing.T) {
	t.Parallel()
	const group = "rbac.authorization.k8s.io"
	for name, change := range map[string]func(*apireg.APIService){
		"at a Service": func(a *apireg.APIService) { a.Spec.Service = widgetsAt().Spec.Service },
		"at a Backend": func(*apireg.APIService) {},
	} {
		a := userAPIService(group, "v7", "b")
		change(a)
		s := onService(t, a)
		s.own = []discovery.GroupVersion{{Group: group, Version: "v1"}}
		s.Reconcile()
		if c := s.Conditions()[a.Name]; c.Available() || !strings.Contains(c.Message, group+" is served by the gateway itself") {
			t.Errorf("%s: the condition is %+v", name, c)
		}
		if s.Table().Lookup(group, "v7") != nil || s.Discovery().Load().Serves("/apis/"+group+"/v7") {
			t.Errorf("%s: it is served", name)
		}
	}
}

// If the Backend of an APIService does not exist, its condition, requests and discovery name
// it, once the Backends are read.
func TestBackendThatIsNotPresent(t *testing.T) {
	t.Parallel()
	a := userAPIService(widgetsGroup, "v1", "gone")
	s := onService(t, a)
	s.grace = time.Nanosecond
	s.Reconcile()
	want := apiservice.Condition{Status: apireg.ConditionFalse, Reason: "ServiceNotFound", Message: `Backend "gone" is not present`}
	if c := s.Conditions()[a.Name]; c != want {
		t.Errorf("the condition is %+v", c)
	}
	rt := s.routeOf(widgetsGroup)
	if rt == nil || rt.Unavailable() == nil {
		t.Fatalf("the route is %+v", rt)
	}
	if err := rt.Unavailable(); err.ErrStatus.Code != 503 || !strings.Contains(err.Error(), want.Message) || !apierrors.HasStatusCause(err, discovery.CauseNotServed) {
		t.Errorf("the answer is %+v", err.ErrStatus)
	}
	gvs := s.Discovery().Load().GroupVersions
	if at := slices.IndexFunc(gvs, func(gv discovery.GroupVersion) bool { return gv.Group == "widgets.example.com" }); at < 0 || !gvs[at].Unknown {
		t.Errorf("discovery has %+v", gvs)
	}
	w := httptest.NewRecorder()
	discovery.NewExplaining(s.Discovery(), s.WhyUnknown).ServeHTTP(w, httptest.NewRequest("GET", "/apis/widgets.example.com/v1", nil))
	if w.Code != 503 || !strings.Contains(w.Body.String(), `ServiceNotFound: Backend \"gone\" is not present`) {
		t.Errorf("discovery of it answers %d: %s", w.Code, w.Body)
	}
	s.mu.Lock()
	s.in.haveBackends, s.in.backends = false, []*backend.Backend{} // restored
	s.mu.Unlock()
	s.Reconcile()
	if c := s.Conditions()[a.Name]; c == want {
		t.Error("a Backend that was not read yet counts as deleted")
	}
}

// An APIService that names no server is not available, whoever serves the group, until the gateway
// serves the group/version itself.
func TestAPIServiceWithoutServer(t *testing.T) {
	t.Parallel()
	for _, a := range []*apireg.APIService{userAPIService("extensions", "v1beta1", ""), userAPIService(widgetsGroup, "v1beta9", ""), userAPIService("apps", "v1beta2", backend.Reserved)} {
		apiservice.Set(a, apiservice.Local(), time.Now()) // as an earlier version said
		s := onService(t, a, backendAt(one))
		if c := s.Conditions()[a.Name]; c != apiservice.NotServed(a) {
			t.Errorf("%s: the condition is %+v", a.Name, c)
		}
		if s.Table().Lookup(a.Spec.Group, a.Spec.Version) != nil {
			t.Errorf("%s: it is routed", a.Name)
		}
		s.mu.Lock()
		s.in.haveBackends = false // restored, while the gateway starts
		s.mu.Unlock()
		s.Reconcile()
		if c := s.Conditions()[a.Name]; c != apiservice.NotServed(a) {
			t.Errorf("%s, while the gateway starts: the condition is %+v", a.Name, c)
		}
		s.own = []discovery.GroupVersion{{Group: a.Spec.Group, Version: a.Spec.Version}}
		s.Reconcile()
		if c := s.Conditions()[a.Name]; c != apiservice.Local() {
			t.Errorf("%s, served by the gateway: %+v", a.Name, c)
		}
	}
}

// The server of a deleted Backend keeps a group/version for a bounded time if another Backend
// takes it over; else requests fail at once.
func TestHandoverToAnotherBackend(t *testing.T) {
	t.Parallel()
	takes := func(groups ...string) *backend.AutoRegister { return &backend.AutoRegister{Groups: groups} }
	for name, c := range map[string]struct {
		auto     *backend.AutoRegister // of the other one
		serves   []discovery.GroupVersion
		byUser   bool
		succeeds bool
	}{
		"it takes the group":                 {takes(widgetsGroup), widgets(), false, true},
		"it takes all groups":                {takes(backend.AllGroups), widgets(), false, true},
		"it takes others":                    {takes("others.example.com"), widgets(), false, false},
		"it takes none":                      {nil, widgets(), false, false},
		"its server does not have the group": {takes(backend.AllGroups), widgets()[1:], false, false},
		"its server was not read":            {takes(backend.AllGroups), nil, false, false},
		"the APIService is a user's":         {takes(backend.AllGroups), widgets(), true, false},
	} {
		holder := named("a", backend.Spec{Endpoints: []backend.Endpoint{{URL: one}}, AutoRegister: takes(widgetsGroup)})
		other := named("b", backend.Spec{Endpoints: []backend.Endpoint{{URL: two}}, AutoRegister: c.auto})
		a, taken := custom(widgetsGroup, "a"), custom(widgetsGroup, "b")
		if c.byUser {
			a.Labels = nil
		}
		apiservice.Set(a, apiservice.Local(), time.Now())
		apiservice.Set(taken, apiservice.Local(), time.Now())
		s := onService(t, a, holder, other)
		before, next := s.servers["backend/a"], s.servers["backend/b"]
		if c.serves != nil {
			next.Source.Restore(c.serves)
		}
		again := s.store(other)
		rt := s.routeOf(widgetsGroup)
		if kept := rt.Upstream == before.Up && rt.Unavailable() == nil && s.servers["backend/a"] == before; kept != c.succeeds || !kept && rt.Unavailable() == nil {
			t.Errorf("%s: the server keeps it: %v (%v)", name, kept, rt.Unavailable())
		}
		if !c.succeeds {
			continue
		}
		if again <= 0 || again > handover {
			t.Errorf("%s: the next reconcile is after %v", name, again)
		}
		s.SetAPIServices([]*apireg.APIService{taken})
		s.Reconcile()
		if rt := s.routeOf(widgetsGroup); rt.Upstream != next.Up || rt.Unavailable() != nil || s.servers["backend/a"] != nil {
			t.Errorf("%s: registered with the other one, it goes to %v (%v)", name, rt.Upstream, rt.Unavailable())
		}
		s.SetAPIServices([]*apireg.APIService{a})
		s.store(holder, other)
		s.store(other)
		s.unresolved[a.Name] = time.Now().Add(-handover)
		s.Reconcile()
		if rt := s.routeOf(widgetsGroup); rt.Unavailable() == nil || s.servers["backend/a"] != nil {
			t.Errorf("%s: it was not registered in time, and its server still has it", name)
		}
	}
}

// WhyUnknown has the error of a document or of the server, and nothing before the first check.
func TestWhyNothingIsKnown(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api":
			http.NotFound(w, r)
		case "/apis":
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","groups":[{"name":"widgets.example.com","versions":[{"version":"v1"}]}]}`))
		default:
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	away := httptest.NewTLSServer(http.NotFoundHandler())
	away.Close()
	for name, c := range map[string]struct{ url, want string }{
		"one document": {server.URL, "bad status from /apis/widgets.example.com/v1: 500"}, "the server": {away.URL, "connection refused"},
	} {
		s := onService(t, custom(widgetsGroup, "b"), backendAt(c.url))
		if why := s.WhyUnknown("widgets.example.com", "v1"); why != "" {
			t.Errorf("%s: before the first check: %s", name, why)
		}
		stop := s.startChecks(t)
		await.Until(t, name+": the reason is known", func() bool {
			s.Reconcile()
			return strings.Contains(s.WhyUnknown("widgets.example.com", "v1"), c.want)
		})
		stop()
	}
}
