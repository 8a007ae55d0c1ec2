package gateway

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/apiservice/explain"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource"
)

// explaining is an explainer of routes to one server, which refuses at one of its
// two endpoints, and the proxy that goes by them.
type explaining struct {
	explainer
	routes        map[schema.GroupVersion]*proxy.Route
	list          []*apireg.APIService
	snapshot      *discovery.Snapshot
	refused, good string // the endpoints, in the order of picks
}

func startExplaining(t *testing.T) *explaining {
	t.Helper()
	listening, closed := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), httptest.NewTLSServer(nil)
	t.Cleanup(listening.Close)
	closed.Close()
	endpoints := upstream.At(closed.Listener.Addr().String(), listening.Listener.Addr().String())
	up := proxy.NewUpstream(upstream.Config{
		Base: &url.URL{Scheme: "https", Host: "api.ns.svc:443"}, Endpoints: endpoints, Trust: upstream.Trust{Insecure: true},
		Policy: upstream.NewPolicy(&backend.Spec{Balance: backend.RoundRobin}),
	}, proxy.NewMaker(slog.New(slog.DiscardHandler)))
	t.Cleanup(up.Close)
	x := &explaining{refused: endpoints[0].URL, good: endpoints[1].URL, routes: map[schema.GroupVersion]*proxy.Route{
		{Group: "g.example.com", Version: "v1"}:    {Name: "v1.g.example.com", Upstream: up, Condition: apiservice.Passed(), Backend: "apiservice/v1.g.example.com"},
		{Group: "down.example.com", Version: "v1"}: {Name: "v1.down.example.com", Upstream: up, Condition: apiservice.Condition{Status: "False", Reason: "MissingEndpoints", Message: "none"}},
		{Group: "own.example.com", Version: "v1"}:  {Name: "v1.own.example.com", Local: true, Condition: apiservice.Local()},
	}}
	x.explainer = explainer{
		table:     func() *proxy.Table { return &proxy.Table{Routes: x.routes} },
		documents: func() *discovery.Snapshot { return x.snapshot },
		listed:    func() ([]*apireg.APIService, bool) { return x.list, true },
	}
	return x
}

// ask sends a request as the user admin.
func (x *explaining) ask(method, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin"}
	r = r.WithContext(resource.WithAction(r.Context(), act))
	w := httptest.NewRecorder()
	if act.IsResource {
		(&proxy.Proxy{}).Send(w, r, x.table().Lookup(act.Group, act.Version))
	} else {
		x.ServeHTTP(w, r)
	}
	return w
}

// lists makes the group/versions the gateway's discovery.
func (x *explaining) lists(t *testing.T, gvs ...discovery.GroupVersion) {
	t.Helper()
	var err error
	if x.snapshot, err = discovery.Build(gvs, ""); err != nil {
		t.Fatal(err)
	}
}

// explained returns the explanation of a request.
func (x *explaining) explained(t *testing.T, path, verb string) *explain.Explanation {
	t.Helper()
	query := url.Values{"path": {path}}
	if verb != "" {
		query.Set("verb", verb)
	}
	w := x.ask("GET", explain.Path+"?"+query.Encode())
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	e := new(explain.Explanation)
	if err := json.Unmarshal(w.Body.Bytes(), e); err != nil {
		t.Fatal(err)
	}
	return e
}

const things = "/apis/g.example.com/v1/things"

// An explanation has the verb, the answerer, the code and the state of the server.
func TestExplain(t *testing.T) {
	t.Parallel()
	x := startExplaining(t)
	x.lists(t, discovery.GroupVersion{Group: "g.example.com", Version: "v1"}, discovery.GroupVersion{Group: "down.example.com", Version: "v1", Stale: true},
		discovery.GroupVersion{Group: "own.example.com", Version: "v1", Unknown: true})
	for _, tc := range []struct {
		path, verb string
		by         explain.Answerer
		code       int
		as         string // the verb that has to be allowed
		fresh      string
	}{
		{things, "", explain.Server, 0, "list", "Current"},
		{things + "?watch=true", "", explain.Server, 0, "watch", "Current"},
		{things, "watch", explain.Server, 0, "watch", "Current"},
		{things, "create", explain.Server, 0, "create", "Current"},
		{things, "delete", explain.Server, 0, "deletecollection", "Current"},
		{"/apis/g.example.com/v1/namespaces/n/things/a/status", "PUT", explain.Server, 0, "update", "Current"},
		{"/apis/g.example.com/v1/things/a%2F..%2Fb/x", "", explain.Nobody, 400, "get", "Current"},
		{"/apis/g.example.com/v1", "", explain.Gateway, 0, "get", "Current"},
		{"/apis/down.example.com/v1/things", "", explain.Nobody, 503, "list", "Stale"},
		{"/apis/own.example.com/v1/things", "", explain.Gateway, 0, "list", "Unknown"},
		{"/apis/none.example.com/v1/things", "", explain.Nobody, 404, "list", ""},
		{"/readyz", "", explain.Gateway, 0, "get", ""},
	} {
		e := x.explained(t, tc.path, tc.verb)
		fresh := ""
		if e.APIService != nil {
			fresh = e.APIService.Freshness
		}
		if e.Answerer != tc.by || e.Code != tc.code || e.Request.Verb != tc.as || fresh != tc.fresh || len(e.Reasons) == 0 {
			t.Errorf("%s %s: got %+v", tc.verb, tc.path, e)
		}
	}

	e := x.explained(t, things, "")
	b := e.Backend
	if b == nil || b.Name != "apiservice/v1.g.example.com" || len(b.Endpoints) != 2 || b.Endpoints[0].URL != x.refused || !b.Endpoints[0].Pickable || b.Policy.Balance != "RoundRobin" {
		t.Fatalf("got %+v", b)
	}
	if !strings.Contains(b.Policy.Retries, "503") || strings.Contains(x.explained(t, things, "create").Backend.Policy.Retries, "503") {
		t.Errorf("retries: %s", b.Policy.Retries)
	}
	// An endpoint that refuses is known after a request to it.
	x.ask("GET", things)
	b = x.explained(t, things, "").Backend
	if b.Pick != x.good || b.Endpoints[0].Pickable || b.Endpoints[0].State != "Unhealthy" || !strings.Contains(b.Endpoints[0].LastError, "refused") || b.Endpoints[0].Since == nil || b.Endpoints[0].LastErrorTime == nil || b.Endpoints[1].LastErrorTime != nil {
		t.Errorf("got %+v", b)
	}
	if b.Policy.MaxConnectionAge != "10m0s" || !strings.Contains(b.Policy.SlowStart, "10s") {
		t.Errorf("got the policy %+v", b.Policy)
	}
}

// An explanation names a resource that discovery does not list, and picks an endpoint only for
// a request that is sent.
func TestExplainWhatIsMissing(t *testing.T) {
	t.Parallel()
	x := startExplaining(t)
	x.lists(t, discovery.GroupVersion{Group: "g.example.com", Version: "v1", Legacy: []metav1.APIResource{{Name: "things", Kind: "Thing"}}},
		discovery.GroupVersion{Group: "down.example.com", Version: "v1", Unknown: true})
	for path, missing := range map[string]bool{
		"/apis/g.example.com/v1/things": false, "/apis/g.example.com/v1/thing": true, "/apis/g.example.com/v1": false,
		"/apis/down.example.com/v1/things": false, "/apis/own.example.com/v1/things": false,
	} {
		e := x.explained(t, path, "")
		if got := strings.Contains(strings.Join(e.Reasons, " "), "lists no resource"); got != missing {
			t.Errorf("%s: %q", path, e.Reasons)
		}
		if sent := e.Answerer == explain.Server; e.Backend != nil && (e.Backend.Pick != "") != sent {
			t.Errorf("%s: answered by %s, and %q is picked", path, e.Answerer, e.Backend.Pick)
		} else if e.Backend != nil && slices.ContainsFunc(e.Backend.Endpoints, func(e explain.Endpoint) bool { return e.Pickable }) != sent {
			t.Errorf("%s: answered by %s, and the endpoints are %+v", path, e.Answerer, e.Backend.Endpoints)
		}
	}
}

// An endpoint with weight 0 drains, and the explanation covers its watches.
func TestExplainDrain(t *testing.T) {
	t.Parallel()
	x := startExplaining(t)
	up := x.table().Lookup("g.example.com", "v1").Upstream
	drained := func(weights ...int) []explain.Endpoint {
		t.Helper()
		endpoints := up.Endpoints()
		for i, w := range weights {
			endpoints[i].Weight = w
		}
		up.SetEndpoints(endpoints)
		return x.explained(t, things, "").Backend.Endpoints
	}
	if e := drained(0, 1); e[0].State != backend.EndpointDraining || !strings.Contains(e[0].Drains, "watches end within 30s") || e[0].Pickable || e[1].Drains != "" {
		t.Errorf("one of two: %+v", e)
	}
	if w := x.ask("GET", explain.Path+"?path="+things); !strings.Contains(w.Body.String(), `"weight": 0,`) {
		t.Errorf("the weight is not said: %s", w.Body)
	}
	if e := drained(0, 0); !strings.Contains(e[0].Drains, "its watches remain") {
		t.Errorf("both: %+v", e)
	}
	if e := drained(1, 1); e[0].Drains != "" {
		t.Errorf("neither: %+v", e)
	}
}

// A request to a Backend without server, and one that a REST server does not support, are explained.
func TestExplainRefusals(t *testing.T) {
	t.Parallel()
	x := startExplaining(t)
	up := x.table().Lookup("g.example.com", "v1").Upstream
	gone := apiservice.Condition{Status: "False", Reason: "ServiceNotFound", Message: "none"}
	for group, known := range map[string]bool{"shop.example.com": true, "new.example.com": false} {
		gv := schema.GroupVersion{Group: group, Version: "v1"}
		x.routes[gv] = &proxy.Route{Name: "v1." + group, Upstream: up, Condition: apiservice.Local(), REST: proxy.NewREST(gv, "", known, nil, &backend.REST{})}
	}
	for _, group := range []string{"gone.example.com", "mine.example.com"} {
		x.routes[schema.GroupVersion{Group: group, Version: "v1"}] = &proxy.Route{Name: "v1." + group, Condition: gone}
	}
	to := metav1.ObjectMeta{Name: "v1.mine.example.com", Annotations: map[string]string{apiservice.BackendAnnotation: "billing"}}
	automanaged := *to.DeepCopy()
	automanaged.Name, automanaged.Labels = "v1.gone.example.com", map[string]string{apiservice.AutomanagedLabel: apiservice.Managed}
	x.list = []*apireg.APIService{{ObjectMeta: automanaged}, {ObjectMeta: to}}
	for _, tc := range []struct {
		path, verb string
		code       int
		reasons    []string
	}{
		{"/apis/gone.example.com/v1/things", "", 503, []string{`for the server "billing"`, "ServiceNotFound"}},
		{"/apis/mine.example.com/v1/things", "", 503, []string{`with the server "billing"`, "ServiceNotFound"}},
		{"/apis/shop.example.com/v1/things", "watch", 405, []string{"cannot be watched"}},
		{"/apis/shop.example.com/v1/a//b", "", 400, []string{"empty segment"}},
		{"/apis/new.example.com/v1/things", "", 503, []string{"has not been read yet"}},
	} {
		e := x.explained(t, tc.path, tc.verb)
		if e.Answerer != explain.Nobody || e.Code != tc.code {
			t.Errorf("%s: got %+v", tc.path, e)
		}
		for _, want := range tc.reasons {
			if !strings.Contains(strings.Join(e.Reasons, " "), want) {
				t.Errorf("%s: %q is not among %q", tc.path, want, e.Reasons)
			}
		}
	}
	if e := x.explained(t, "/apis/shop.example.com/v1/things", ""); e.Answerer != explain.Server {
		t.Errorf("what is sent: got %+v", e)
	}
}

// A question without a path, or with an unknown verb or method, is refused.
func TestExplainBadQuestions(t *testing.T) {
	t.Parallel()
	x := startExplaining(t)
	for query, want := range map[string]string{
		"":                       "path: ",
		"?path=apis":             "path: ",
		"?path=/a%25zz":          "path: ",
		"?path=/api&verb=fetch":  "verb: ",
		"?path=/api&verb=GET%20": "verb: ",
	} {
		w := x.ask("GET", explain.Path+query)
		if w.Code != 400 || !strings.Contains(w.Body.String(), `"message":"`+want) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	if w := x.ask("POST", explain.Path+"?path=/api"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

// Every question is a request that can be explained, or an error that names the parameter.
func FuzzAskedRequest(f *testing.F) {
	f.Add("/apis/apps/v1/deployments?watch=1", "watch")
	f.Add("//", "")
	f.Add("/%2e%2e/", "PATCH")
	x := &explainer{table: func() *proxy.Table { return nil }}
	f.Fuzz(func(t *testing.T, path, verb string) {
		r, err := askedRequest(url.Values{"path": {path}, "verb": {verb}}, &resource.User{})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "path: ") && !strings.HasPrefix(err.Error(), "verb: ") {
				t.Errorf("%v", err)
			}
			return
		}
		if e := x.explain(r); e.Request.Path != r.URL.Path || e.Answerer == "" {
			t.Errorf("%q: %+v", path, e)
		}
	})
}
