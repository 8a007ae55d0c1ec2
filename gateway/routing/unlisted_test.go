package routing

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/internal/testing/await"
	"portico/resource/loop"
)

// listing is a server that lists and serves v1 of widgets.example.com; unlisted is the status
// of v2, which it does not list.
type listing struct {
	*httptest.Server
	unlisted atomic.Int32
	v2       atomic.Bool // it lists v2, too
}

func startListing(t *testing.T) *listing {
	t.Helper()
	l := &listing{}
	l.unlisted.Store(http.StatusNotFound)
	l.Server = httptest.NewTLSServer(l)
	t.Cleanup(l.Close)
	return l
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const group = widgetsGroup
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	resources := func(version string) {
		answer(metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group + "/" + version,
			APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Verbs: []string{"get"}}},
		})
	}
	switch r.URL.Path {
	case "/apis":
		versions := []metav1.GroupVersionForDiscovery{{GroupVersion: group + "/v1", Version: "v1"}}
		if l.v2.Load() {
			versions = append(versions, metav1.GroupVersionForDiscovery{GroupVersion: group + "/v2", Version: "v2"})
		}
		answer(metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{{Name: group, Versions: versions}},
		})
	case "/apis/" + group + "/v1":
		resources("v1")
	case "/apis/" + group + "/v2":
		if code := int(l.unlisted.Load()); code != http.StatusOK {
			w.WriteHeader(code)
			return
		}
		resources("v2")
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// A user's APIService is available if the server of its Backend serves the group/version,
// listed or not: an unlisted one is checked.
func TestUnlistedGroupVersion(t *testing.T) {
	t.Parallel()
	l := startListing(t)
	v1, mine := userAPIService(widgetsGroup, "v1", "b"), userAPIService(widgetsGroup, "v2", "b")
	s := onService(t, v1, backendAt(l.URL))
	s.startChecks(t)
	shows := func(what, name, reason string) apiservice.Condition {
		t.Helper()
		await.Until(t, what, func() bool { s.Reconcile(); return s.Conditions()[name].Reason == reason })
		return s.Conditions()[name]
	}
	l.unlisted.Store(http.StatusForbidden)
	s.SetAPIServices([]*apireg.APIService{v1, mine})
	shows("403 is not available", "v2.widgets.example.com", "FailedDiscoveryCheck")
	s.checker.Suspect("backend/b")
	await.Until(t, "discovery was refused, too", func() bool { return len(s.servers["backend/b"].Source.Unread()) == 1 })
	shows("and remains so", "v2.widgets.example.com", "FailedDiscoveryCheck")
	l.unlisted.Store(http.StatusNotFound)
	path := l.URL + "/apis/widgets.example.com/v2"
	await.Until(t, "it is checked again", func() bool {
		err := s.checker.Verdict("backend/b " + path).Err
		return err != nil && strings.Contains(err.Error(), "404")
	})
	await.Until(t, "discovery gets the same answer", func() bool {
		s.checker.Suspect("backend/b")
		return len(s.servers["backend/b"].Source.Unread()) == 0
	})
	c := shows("404 is not available", "v2.widgets.example.com", "FailedDiscoveryCheck")
	if want := "failing or missing response from " + path + ": bad status from " + path + ": 404; the server does not serve it, and the APIService stays until it is deleted: a user keeps it (kubectl delete apiservice)"; c.Message != want {
		t.Errorf("%q, want %q", c.Message, want)
	}
	s.grace = time.Nanosecond
	s.Reconcile()
	w := httptest.NewRecorder()
	discovery.NewExplaining(s.Discovery(), s.WhyUnknown).ServeHTTP(w, httptest.NewRequest("GET", "/apis/widgets.example.com/v2", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"reason":"NotServed"`) {
		t.Errorf("discovery does not say that no server has it: %d %s", w.Code, w.Body)
	}
	if c := s.Conditions()["v1.widgets.example.com"]; c != apiservice.Local() {
		t.Errorf("what the server lists: %+v", c)
	}

	l.unlisted.Store(http.StatusOK)
	shows("what is served without being listed is available", "v2.widgets.example.com", "Local")
	await.Until(t, "discovery reads it at once", func() bool {
		gvs, _ := s.servers["backend/b"].Source.GroupVersions()
		return slices.ContainsFunc(gvs, func(gv discovery.GroupVersion) bool { return gv.Version == "v2" && len(gv.Legacy) == 1 && gv.Unlisted })
	})
	l.unlisted.Store(http.StatusNotFound)
	s.checker.Suspect("backend/b " + path)
	shows("404 again", "v2.widgets.example.com", "FailedDiscoveryCheck")
	l.v2.Store(true)
	s.checker.Suspect("backend/b")
	shows("it lists it", "v2.widgets.example.com", "Local")
	if v := s.checker.Verdict("backend/b " + path); v.Known {
		t.Errorf("a listed group/version is checked: %+v", v)
	}
	l.v2.Store(false)
	s.checker.Suspect("backend/b")
	shows("it is not listed again", "v2.widgets.example.com", "FailedDiscoveryCheck")

	// An automanaged APIService is not checked.
	automanaged := mine.DeepCopy()
	automanaged.Labels = custom(widgetsGroup, "b").Labels
	s.SetAPIServices([]*apireg.APIService{v1, automanaged})
	shows("an automanaged APIService is its server's", "v2.widgets.example.com", "Local")

	// Nothing but the discovery of a server that is down is checked.
	s.SetAPIServices([]*apireg.APIService{v1, mine})
	shows("it does not list it", "v2.widgets.example.com", "FailedDiscoveryCheck")
	if v := s.checker.Verdict("backend/b " + path); !v.Known {
		t.Error("it is not checked")
	}
	l.Close()
	shows("it is down", "v1.widgets.example.com", "FailedDiscoveryCheck")
	if v := s.checker.Verdict("backend/b " + path); v.Known {
		t.Errorf("an unlisted group/version of a server that is down is checked: %+v", v)
	}
}

// A server that replaces another one of the same name is checked.
func TestReplacedServerIsChecked(t *testing.T) {
	t.Parallel()
	l := startListing(t)
	b := backendAt(l.URL)
	b.UID = "first"
	s := onService(t, widgetsAt(), b)
	s.startChecks(t)
	read := func() bool {
		srv := s.servers["backend/b"]
		return srv.Source.Fetched() && srv.Up.Status().Endpoints[0].State == backend.EndpointHealthy
	}
	await.Until(t, "the first is read", read)
	first := s.servers["backend/b"]
	b = b.DeepCopy()
	b.UID = "second"
	s.store(b)
	if s.servers["backend/b"] == first {
		t.Fatal("it is the same server")
	}
	await.Until(t, "the second is read", read)
}

// An APIService that names another Service has another server, and the former one is not kept.
func TestServerOfAnotherService(t *testing.T) {
	t.Parallel()
	external := func(name string) *corev1.Service {
		return service(name, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: name + ".example.com"})
	}
	s := onService(t, widgetsAt())
	s.SetServices(followed(t, external("api"), external("other")), loop.Snapshot{})
	s.Reconcile()
	first := s.routeOf(widgetsGroup).Upstream
	s.SetAPIServices([]*apireg.APIService{widgetsAt(func(spec *apireg.APIServiceSpec) { spec.Service.Name = "other" })})
	s.Reconcile()
	next := s.routeOf(widgetsGroup).Upstream
	if next == nil || next == first || len(s.servers) != 1 || next.Base().Host != "other.ns.svc:443" || next.Endpoints()[0].Address != "other.example.com:443" {
		t.Errorf("of %d servers it has %+v", len(s.servers), next)
	}
}

// A group/version of a server that has never answered is stale and empty in the aggregated document, and 503 at
// its own path, at once: discovery does not wait for a server that hangs.
func TestDiscoveryOfServersThatFail(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"hangs":       func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"answers 503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, requests := make(chan struct{}, 1), new(atomic.Int32)
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				select {
				case asked <- struct{}{}:
				default:
				}
				serve(w, r)
			}))
			t.Cleanup(server.Close)
			a := userAPIService(widgetsGroup, "v1", "b")
			s := onService(t, a, backendAt(server.URL))
			stop := s.startChecks(t)
			<-asked
			if name != "hangs" {
				await.Until(t, "the check fails", func() bool {
					s.Reconcile()
					return s.Conditions()[a.Name].Reason == "FailedDiscoveryCheck"
				})
			}
			stop()
			before := requests.Load()
			get := func(path, accept string) *httptest.ResponseRecorder {
				r, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
				r.Header.Set("Accept", accept)
				discovery.NewHandler(s.Discovery()).ServeHTTP(w, r)
				return w
			}
			if w := get("/apis/"+widgetsGroup+"/v1", "application/json"); w.Code != http.StatusServiceUnavailable {
				t.Errorf("the group/version: %d %s", w.Code, w.Body)
			}
			var list apidiscovery.APIGroupDiscoveryList
			w := get("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Items) != 1 {
				t.Fatalf("%v: %s", err, w.Body)
			}
			if v := list.Items[0].Versions; len(v) != 1 || v[0].Freshness != apidiscovery.DiscoveryFreshnessStale || len(v[0].Resources) != 0 {
				t.Errorf("got %+v", v)
			}
			if name == "hangs" && requests.Load() != before {
				t.Error("discovery asks the server")
			}
		})
	}
}
