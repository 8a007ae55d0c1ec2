package gateway

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	listening := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(listening.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	endpoints := upstream.At(closed.Addr().String(), listening.Listener.Addr().String())
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

// ask has an admin's request answered.
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

func TestExplain(t *testing.T) {
	const things = "/apis/g.example.com/v1/things"
	x := startExplaining(t)
	snapshot, err := discovery.Build([]discovery.GroupVersion{
		{Group: "g.example.com", Version: "v1"}, {Group: "down.example.com", Version: "v1", Stale: true}, {Group: "own.example.com", Version: "v1", Unknown: true},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	x.snapshot = snapshot
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
	// The one that refuses is known once a request met it.
	x.ask("GET", things)
	b = x.explained(t, things, "").Backend
	if b.Pick != x.good || b.Endpoints[0].Pickable || b.Endpoints[0].State != "Unhealthy" || !strings.Contains(b.Endpoints[0].LastError, "refused") || b.Endpoints[0].Since == nil {
		t.Errorf("got %+v", b)
	}
	if b.Policy.MaxConnectionAge != "10m0s" || !strings.Contains(b.Policy.SlowStart, "10s") {
		t.Errorf("got the policy %+v", b.Policy)
	}
}

// Where the request is not sent no endpoint is picked, and a resource that discovery does
// not list is said to be missing, one that it lists is not.
func TestExplainWhatIsMissing(t *testing.T) {
	x := startExplaining(t)
	snapshot, err := discovery.Build([]discovery.GroupVersion{
		{Group: "g.example.com", Version: "v1", Legacy: []metav1.APIResource{{Name: "things", Kind: "Thing"}}}, {Group: "down.example.com", Version: "v1", Unknown: true},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	x.snapshot = snapshot
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
		}
	}
}

// An endpoint with weight 0 drains, and the explanation covers its watches.
func TestExplainDrain(t *testing.T) {
	const things = "/apis/g.example.com/v1/things"
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
	x := startExplaining(t)
	up := x.table().Lookup("g.example.com", "v1").Upstream
	gone := apiservice.Condition{Status: "False", Reason: "ServiceNotFound", Message: "none"}
	x.routes = map[schema.GroupVersion]*proxy.Route{
		{Group: "gone.example.com", Version: "v1"}: {Name: "v1.gone.example.com", Condition: gone},
		{Group: "mine.example.com", Version: "v1"}: {Name: "v1.mine.example.com", Condition: gone},
		{Group: "shop.example.com", Version: "v1"}: {Name: "v1.shop.example.com", Upstream: up, Condition: apiservice.Local(), REST: proxy.NewREST(schema.GroupVersion{Group: "shop.example.com", Version: "v1"}, "", true, nil, false)},
		{Group: "new.example.com", Version: "v1"}:  {Name: "v1.new.example.com", Upstream: up, Condition: apiservice.Local(), REST: proxy.NewREST(schema.GroupVersion{Group: "new.example.com", Version: "v1"}, "", false, nil, false)},
	}
	to := map[string]string{apiservice.BackendAnnotation: "billing"}
	x.list = []*apireg.APIService{
		{ObjectMeta: metav1.ObjectMeta{Name: "v1.gone.example.com", Annotations: to, Labels: map[string]string{apiservice.AutomanagedLabel: apiservice.Managed}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "v1.mine.example.com", Annotations: to}},
	}
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

func TestExplainBadQuestions(t *testing.T) {
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

// Whatever is asked, the question is a request that can be explained, or an
// error that names the parameter.
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
