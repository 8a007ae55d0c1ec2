package routing

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/proxy"
)

// The route, the condition and the discovery entry of every kind of decision.
func TestAdd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	graced := &Controller{grace: time.Minute, own: []discovery.GroupVersion{
		{Group: apiservice.Group, Version: "v1", GroupPriority: 20001}, {Group: "rbac.authorization.k8s.io", Version: "v1"},
	}}
	lasting := &Controller{own: graced.own} // no grace period: discovery remains current
	known := &Server{Up: &proxy.Upstream{}, Source: sources.NewSource(sources.Config{Previous: []discovery.GroupVersion{
		{Group: "a.example.com", Version: "v1", Legacy: []metav1.APIResource{{Name: "things"}}},
	}})}
	mute := &Server{Up: &proxy.Upstream{}, Source: sources.NewSource(sources.Config{})}
	blind := &Server{Up: &proxy.Upstream{}, Source: sources.NewSource(sources.Config{Previous: []discovery.GroupVersion{
		{Group: "a.example.com", Version: "v1", Stale: true, Legacy: []metav1.APIResource{{Name: "things"}}},
	}})}
	down := apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck"}
	for name, c := range map[string]struct {
		group                    string
		p                        routeDecision
		routed, available, stale bool
		unknown, listed          bool
		next                     bool
	}{
		"own":                     {"rbac.authorization.k8s.io", routeDecision{local: true, condition: apiservice.Local()}, true, true, false, false, true, false},
		"answering":               {"a.example.com", routeDecision{server: known, condition: apiservice.Passed()}, true, true, false, false, true, false},
		"stale by the server":     {"a.example.com", routeDecision{server: blind, condition: apiservice.Passed()}, true, true, true, false, true, false},
		"never answered":          {"b.example.com", routeDecision{server: mute, condition: down}, true, false, false, true, true, false},
		"no server":               {"c.example.com", routeDecision{condition: down}, true, false, false, true, true, false},
		"no route":                {"d.example.com", routeDecision{nowhere: true, condition: apiservice.Local()}, false, false, false, false, false, false},
		"down within the grace":   {"a.example.com", routeDecision{server: known, condition: down, wasGood: true, since: now.Add(-10 * time.Second)}, true, false, false, false, true, true},
		"down longer than grace":  {"a.example.com", routeDecision{server: known, condition: down, wasGood: true, since: now.Add(-2 * time.Minute)}, true, false, true, false, true, false},
		"without grace, down":     {"a.example.com", routeDecision{server: known, condition: down, wasGood: true, since: now.Add(-48 * time.Hour)}, true, false, false, false, true, false},
		"without grace, mute":     {"b.example.com", routeDecision{server: mute, condition: down, since: now.Add(-48 * time.Hour)}, true, false, false, true, true, false},
		"registration is not his": {apiservice.Group, routeDecision{server: known, condition: apiservice.Passed()}, true, true, false, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newReconcile(graced, &inputs{})
			if strings.HasPrefix(name, "without grace") {
				m = newReconcile(lasting, &inputs{})
			}
			a := userAPIService(c.group, "v1", "")
			a.Spec.GroupPriorityMinimum = 77
			m.add(a, c.p)
			rt := (&proxy.Table{Routes: m.routes}).Lookup(c.group, "v1")
			if (rt != nil) != c.routed || rt != nil && (rt.Unavailable() == nil) != c.available {
				t.Errorf("route %+v", rt)
			}
			if c.group == apiservice.Group && !rt.Local {
				t.Error("the registration group is not local")
			}
			var entry *discovery.GroupVersion
			for i := range m.entries {
				if m.entries[i].Group == c.group {
					entry = &m.entries[i]
				}
			}
			if (entry != nil) != c.listed || entry != nil && (entry.Stale != c.stale || entry.Unknown != c.unknown) {
				t.Errorf("entry %+v", entry)
			}
			if c.listed && c.group != apiservice.Group && entry.GroupPriority != 77 {
				t.Errorf("priority %d", entry.GroupPriority)
			}
			if m.conditions[a.Name] != c.p.condition || (m.next > 0) != c.next || m.next > time.Minute {
				t.Errorf("condition %+v, next %v", m.conditions[a.Name], m.next)
			}
		})
	}
}

// In a built-in group, versions of other servers come after those of its static Backend,
// whatever their priority; in other groups the priority decides.
func TestBuiltinVersionsComeFirst(t *testing.T) {
	t.Parallel()
	of := func(group, version string, priority int32, labels map[string]string) *apireg.APIService {
		a := userAPIService(group, version, "core")
		a.Labels, a.Spec.VersionPriority = labels, priority
		return a
	}
	automanaged := map[string]string{apiservice.AutomanagedLabel: apiservice.OnStart}
	core, crd := &BackendState{EffectiveBackend: EffectiveBackend{Name: "core", Permanent: true}}, &BackendState{EffectiveBackend: EffectiveBackend{Name: "crd", Permanent: true}}
	list := []*apireg.APIService{
		of("coordination.k8s.io", "v1", 15, automanaged), of("coordination.k8s.io", "v9", 1000, nil),
		of("widgets.example.com", "v1", 15, automanaged), of("widgets.example.com", "v9", 1000, nil),
		of("coordination.k8s.io", "v8", 100, automanaged), // a definition
	}
	list[4].Annotations[apiservice.BackendAnnotation] = "crd"
	m := newReconcile(newController(t), &inputs{apiservices: list})
	m.backendStates = &BackendStates{List: []*BackendState{core, crd}, ByName: map[string]*BackendState{"core": core, "crd": crd}}
	m.findBuiltinGroups()
	for i, want := range []int32{15, 14, 15, 1000, 14} {
		if got := m.entry(list[i], routeDecision{}).VersionPriority; got != want {
			t.Errorf("%s has the priority %d, want %d", list[i].Name, got, want)
		}
	}
}

// OpenAPI documents are merged by the priority of their APIServices, after apiregistration.k8s.io.
func TestOpenAPIPartsByPriority(t *testing.T) {
	t.Parallel()
	s := newController(t)
	s.own = []discovery.GroupVersion{{Group: apiservice.Group, Version: "v1", GroupPriority: 20001}}
	var all []*apireg.APIService
	var served []discovery.GroupVersion
	for _, of := range []struct {
		group, version                 string
		groupPriority, versionPriority int32
	}{{"foo", "v1", 20, 10}, {"bar", "v1", 11, 10}, {"foo", "v2", 1, 15}, {"bar", "v2", 11, 10}} {
		a := userAPIService(of.group, of.version, "b")
		a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority = of.groupPriority, of.versionPriority
		all, served = append(all, a), append(served, discovery.GroupVersion{Group: of.group, Version: of.version})
	}
	fakeBackend(t, s, "b", sources.NewSource(sources.Config{Previous: served}))
	s.store()
	s.SetAPIServices(all)
	s.Reconcile()
	var got []string
	for _, p := range s.OpenAPI().Parts() {
		got = append(got, p.APIService)
	}
	if want := []string{"v1.apiregistration.k8s.io", "v2.foo", "v1.foo", "v2.bar", "v1.bar"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// /apis lists apiregistration.k8s.io first, and then the groups of APIServices by the highest priority of their versions. Each
// group has a document at /apis/GROUP, even if its server is away. A group without APIServices has neither.
func TestGroupsOfAPIServices(t *testing.T) {
	t.Parallel()
	of := func(group, version string, groupPriority, versionPriority int32) *apireg.APIService {
		a := userAPIService(group, version, "gone")
		a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority = groupPriority, versionPriority
		return a
	}
	s := newController(t)
	s.own = []discovery.GroupVersion{{Group: apiservice.Group, Version: "v1", GroupPriority: 20001}}
	s.store()
	get := func(path string) (code int, body string) {
		w := httptest.NewRecorder()
		discovery.NewHandler(s.Discovery()).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	listed := func(want ...string) {
		t.Helper()
		var list metav1.APIGroupList
		_, body := get("/apis")
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		var got []string
		for _, g := range list.Groups {
			for _, v := range g.Versions {
				got = append(got, v.GroupVersion)
			}
			if g.PreferredVersion != g.Versions[0] {
				t.Errorf("%s prefers %v", g.Name, g.PreferredVersion)
			}
		}
		if !slices.Equal(got, append([]string{"apiregistration.k8s.io/v1"}, want...)) {
			t.Errorf("listed are %v, want %v", got, want)
		}
	}
	s.SetAPIServices([]*apireg.APIService{})
	s.Reconcile()
	listed()
	foo := []*apireg.APIService{of("foo", "v1", 20, 10), of("foo", "v2", 1, 15)}
	bar := []*apireg.APIService{of("bar", "v2", 11, 10), of("bar", "v1", 11, 10)}
	s.SetAPIServices([]*apireg.APIService{foo[0], bar[0], foo[1], bar[1]})
	s.Reconcile()
	listed("foo/v2", "foo/v1", "bar/v2", "bar/v1")
	const group = `{"kind":"APIGroup","apiVersion":"v1","name":"foo","versions":[{"groupVersion":"foo/v2","version":"v2"},{"groupVersion":"foo/v1","version":"v1"}],` +
		`"preferredVersion":{"groupVersion":"foo/v2","version":"v2"}}`
	if code, body := get("/apis/foo"); code != http.StatusOK || strings.TrimSpace(body) != group {
		t.Errorf("/apis/foo: %d %s", code, body)
	}
	s.SetAPIServices(bar)
	s.Reconcile()
	listed("bar/v2", "bar/v1")
	for _, path := range []string{"/apis/foo", "/apis/foo/", "/apis/foo/v1", "/apis/missing"} {
		if code, _ := get(path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// A group/version that exceeds the limits on its server is available, and its condition says
// so.
func TestTruncatedIsAvailable(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/widgets.example.com/v1" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"kind":"APIResourceList","groupVersion":"widgets.example.com/v1","resources":[{"name":"widgets"},{"name":"gadgets"}]}`)
	}))
	defer server.Close()
	source := sources.NewSource(sources.Config{
		BaseURL: server.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {}, GroupVersions: []schema.GroupVersion{{Group: "widgets.example.com", Version: "v1"}},
		Limits: sources.Limits{GroupVersions: 10, Memory: 1 << 20, Document: 1 << 20, Group: 1 << 20, Elements: 1},
	})
	if err := source.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, a := newReconcile(newController(t), &inputs{}), widgetsAt()
	m.add(a, routeDecision{server: &Server{Up: &proxy.Upstream{}, Source: source}, condition: apiservice.Passed()})
	if c := m.conditions[a.Name]; !c.Available() || !strings.Contains(c.Message, "DiscoveryTruncated") {
		t.Errorf("condition %+v", c)
	}
}

// wholeSource is a source that has read all that its server serves, which is nothing.
type wholeSource struct{ Source }

func (wholeSource) Served() ([]discovery.GroupVersion, bool) { return nil, true }

// A group/version that its server no longer has is not in discovery while its automanaged
// APIService is still there. It is where a user registered it, or while the server is down.
func TestRemovedGroupVersion(t *testing.T) {
	t.Parallel()
	srv := &Server{Up: &proxy.Upstream{}, Source: wholeSource{sources.NewSource(sources.Config{})}}
	down := apiservice.Condition{Status: apireg.ConditionFalse, Reason: "FailedDiscoveryCheck"}
	for name, c := range map[string]struct {
		a      *apireg.APIService
		p      routeDecision
		listed bool
	}{
		"removed":            {custom(widgetsGroup, "b"), routeDecision{server: srv, condition: apiservice.Passed()}, false},
		"of a user":          {userAPIService(widgetsGroup, "v1", "b"), routeDecision{server: srv, condition: apiservice.Passed()}, true},
		"of a server away":   {custom(widgetsGroup, "b"), routeDecision{server: srv, condition: down}, true},
		"of a server unread": {custom(widgetsGroup, "b"), routeDecision{server: &Server{Up: &proxy.Upstream{}, Source: sources.NewSource(sources.Config{})}, condition: apiservice.Passed()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newReconcile(&Controller{}, &inputs{})
			m.add(c.a, c.p)
			if listed := len(m.entries) == 1; listed != c.listed || len(m.routes) != 1 {
				t.Errorf("entries %+v, routes %v", m.entries, m.routes)
			}
		})
	}
}

// A server is the gateway's own if a flag names its Backend. The label that the gateway gives to such
// Backends is not enough.
func TestStaticRoutes(t *testing.T) {
	t.Parallel()
	s := newController(t)
	fakeBackend(t, s, "core", sources.NewSource(sources.Config{}))
	labeled := backendAt("https://127.0.0.1:1")
	labeled.Labels = map[string]string{apiservice.AutomanagedLabel: apiservice.OnStart}
	s.SetAPIServices([]*apireg.APIService{userAPIService("flag.example.com", "v1", "core"), userAPIService("label.example.com", "v1", "b")})
	s.store(labeled)
	for group, want := range map[string]bool{"flag.example.com": true, "label.example.com": false} {
		if rt := s.routeOf(group); rt == nil || rt.Upstream == nil || rt.Static != want {
			t.Errorf("%s: %+v", group, rt)
		}
	}
}
