package registration

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/routing"
	"portico/resource/rest"
)

// version is an endpoint of a server, with groups that a test sets.
type version struct {
	*httptest.Server
	mu       sync.Mutex
	snapshot *discovery.Snapshot
	fails    string // a path that is answered 500, although it is listed
}

func startVersion(t *testing.T, groups ...string) *version {
	t.Helper()
	v := &version{}
	v.serves(t, "", groups...)
	v.Server = httptest.NewTLSServer(v)
	t.Cleanup(v.Close)
	return v
}

func (v *version) serves(t *testing.T, fails string, groups ...string) {
	t.Helper()
	var gvs []discovery.GroupVersion
	for _, g := range groups {
		things := []metav1.APIResource{{Name: "things", Kind: "Thing", Verbs: []string{"get"}}}
		gvs = append(gvs, discovery.GroupVersion{Group: g, Version: "v1", Legacy: things, Aggregated: discovery.Aggregate(g, "v1", things)})
	}
	snapshot, err := discovery.Build(gvs, "server:443")
	if err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.snapshot, v.fails = snapshot, fails
}

func (v *version) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.URL.Path == v.fails {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	discovery.NewHandler(discovery.Fixed(v.snapshot)).ServeHTTP(w, r)
}

// addAt stores a Backend with these endpoints that registers all groups, and returns its
// server.
func (g *registry) addAt(t *testing.T, name string, at ...*version) *routing.Server {
	t.Helper()
	b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: backend.Spec{
		Balance: backend.RoundRobin, TLS: &backend.TLS{InsecureSkipVerify: true}, AutoRegister: &backend.AutoRegister{Groups: []string{"*"}},
	}}
	for _, v := range at {
		b.Spec.Endpoints = append(b.Spec.Endpoints, backend.Endpoint{URL: v.URL})
	}
	if _, err := rest.CreateObject(t.Context(), g.backends, b); err != nil {
		t.Fatal(err)
	}
	g.readBackends(t)
	srv := g.found.BackendStates().ByName[name].Server
	t.Cleanup(srv.Up.Close)
	return srv
}

// checked reads the discovery of a server and returns the names of all APIServices then.
func (g *registry) checked(t *testing.T, srv *routing.Server) (names []string) {
	t.Helper()
	if err := srv.Source.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name := range g.sync(t, nil) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A group/version remains registered while its document cannot be read, until the server no
// longer lists it.
func TestListedAndNotRead(t *testing.T) {
	const widget, user = "v1.widgets.example.com", "v1.user.example.com"
	g := newRegistry(t, []discovery.GroupVersion{})
	v := startVersion(t, "user.example.com")
	srv := g.addAt(t, "b", v)
	if got := g.checked(t, srv); !slices.Contains(got, user) {
		t.Fatalf("registered %v", got)
	}
	v.serves(t, "/apis/user.example.com/v1", "widgets.example.com", "user.example.com")
	if got := g.checked(t, srv); !slices.Contains(got, widget) || !slices.Contains(got, user) {
		t.Errorf("while one document fails: %v", got)
	}
	v.serves(t, "", "widgets.example.com")
	if got := g.checked(t, srv); !slices.Contains(got, widget) || slices.Contains(got, user) {
		t.Errorf("after it lists one no more: %v", got)
	}
}

// registeredAt reads the discovery of a server until its APIServices are stored, and returns
// the condition Registered of its Backend.
func (g *registry) registeredAt(t *testing.T, name string, srv *routing.Server) apiservice.Condition {
	t.Helper()
	for range 3 {
		g.checked(t, srv)
	}
	return g.writer.registered(g.found.BackendStates().ByName[name])
}

// The condition Registered names invalid group/versions and groups that are not served.
func TestRegisteredNamesWhatIsLeftOut(t *testing.T) {
	g := newRegistry(t, []discovery.GroupVersion{})
	srv := g.addAt(t, "b", startVersion(t, "widgets.example.com", "UPPER.io"))
	c := g.registeredAt(t, "b", srv)
	if c.Status != "False" || c.Reason != "LeftOut" || !strings.Contains(c.Message, `"UPPER.io/v1"`) || g.stored(t)["v1.widgets.example.com"] == nil {
		t.Errorf("the condition is %+v", c)
	}
	g.add(t, "c", &backend.AutoRegister{Groups: []string{"user.example.com", "absent.example.com"}}, serving("user.example.com", "v1"))
	g.sync(t, nil)
	g.sync(t, nil)
	c = g.writer.registered(g.found.BackendStates().ByName["c"])
	if c.Status != "False" || c.Reason != "LeftOut" || !strings.Contains(c.Message, `does not serve "absent.example.com"`) || strings.Contains(c.Message, "user.example.com") {
		t.Errorf("with a group that is not served the condition is %+v", c)
	}
}
