package gateway

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/explain"
	"portico/discovery"
	"portico/resource"
)

func (o *observed) explained(t *testing.T, path, verb string) *explain.Explanation {
	t.Helper()
	query := url.Values{"path": {path}}
	if verb != "" {
		query.Set("verb", verb)
	}
	w := o.do("GET", explain.Path+"?"+query.Encode(), "Test-User", "admin")
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
	o, refused, good := observe(t, ok)
	snapshot, err := discovery.Build([]discovery.GroupVersion{
		{Group: "g.example.com", Version: "v1"}, {Group: "down.example.com", Version: "v1", Stale: true}, {Group: "own.example.com", Version: "v1", Unknown: true},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	o.sync.documents.Store(snapshot)
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
		e := o.explained(t, tc.path, tc.verb)
		fresh := ""
		if e.APIService != nil {
			fresh = e.APIService.Freshness
		}
		if e.Answerer != tc.by || e.Code != tc.code || e.Request.Verb != tc.as || fresh != tc.fresh || len(e.Reasons) == 0 {
			t.Errorf("%s %s: got %+v", tc.verb, tc.path, e)
		}
	}

	e := o.explained(t, things, "")
	b := e.Backend
	if b == nil || b.Name != "apiservice/v1.g.example.com" || len(b.Endpoints) != 2 || b.Endpoints[0].URL != refused || !b.Endpoints[0].Pickable || b.Policy.Balance != "RoundRobin" {
		t.Fatalf("got %+v", b)
	}
	if !strings.Contains(b.Policy.Retries, "503") || strings.Contains(o.explained(t, things, "create").Backend.Policy.Retries, "503") {
		t.Errorf("retries: %s", b.Policy.Retries)
	}
	// The one that refuses is known once a request met it.
	o.do("GET", things)
	b = o.explained(t, things, "").Backend
	if b.Pick != good || b.Endpoints[0].Pickable || b.Endpoints[0].State != "Unhealthy" || !strings.Contains(b.Endpoints[0].LastError, "refused") || b.Endpoints[0].Since == nil {
		t.Errorf("got %+v", b)
	}
}

// What a request would meet is told where the server of a Backend is not known,
// and where a REST server is not asked what it would not understand.
func TestExplainRefusals(t *testing.T) {
	o, _, _ := observe(t, ok)
	routes := o.sync.table.Load().routes
	up := routes[schema.GroupVersion{Group: "g.example.com", Version: "v1"}].upstream
	gone := apiservice.Condition{Status: "False", Reason: "ServiceNotFound", Message: "none"}
	o.sync.table.Store(&table{routes: map[schema.GroupVersion]*route{
		{Group: "gone.example.com", Version: "v1"}: {name: "v1.gone.example.com", condition: gone},
		{Group: "mine.example.com", Version: "v1"}: {name: "v1.mine.example.com", condition: gone},
		{Group: "shop.example.com", Version: "v1"}: {name: "v1.shop.example.com", upstream: up, condition: apiservice.Local(), plain: &plainAPI{root: "/apis/shop.example.com/v1"}},
		{Group: "new.example.com", Version: "v1"}:  {name: "v1.new.example.com", upstream: up, condition: apiservice.Local(), plain: &plainAPI{unknown: true}},
	}})
	to := map[string]string{apiservice.BackendAnnotation: "billing"}
	o.sync.setAPIServices([]*apireg.APIService{
		{ObjectMeta: metav1.ObjectMeta{Name: "v1.gone.example.com", Annotations: to, Labels: map[string]string{apiservice.AutomanagedLabel: apiservice.Managed}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "v1.mine.example.com", Annotations: to}},
	})
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
		e := o.explained(t, tc.path, tc.verb)
		if e.Answerer != explain.Nobody || e.Code != tc.code {
			t.Errorf("%s: got %+v", tc.path, e)
		}
		for _, want := range tc.reasons {
			if !strings.Contains(strings.Join(e.Reasons, " "), want) {
				t.Errorf("%s: %q is not among %q", tc.path, want, e.Reasons)
			}
		}
	}
	if e := o.explained(t, "/apis/shop.example.com/v1/things", ""); e.Answerer != explain.Server {
		t.Errorf("what is sent: got %+v", e)
	}
}

func TestExplainBadQuestions(t *testing.T) {
	o, _, _ := observe(t, ok)
	for query, want := range map[string]string{
		"":                       "path: ",
		"?path=apis":             "path: ",
		"?path=/a%25zz":          "path: ",
		"?path=/api&verb=fetch":  "verb: ",
		"?path=/api&verb=GET%20": "verb: ",
	} {
		w := o.do("GET", explain.Path+query)
		if w.Code != 400 || !strings.Contains(w.Body.String(), `"message":"`+want) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	if w := o.do("POST", explain.Path+"?path=/api"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

// Whatever is asked, the question is a request that can be explained, or an
// error that names the parameter.
func FuzzAskedRequest(f *testing.F) {
	f.Add("/apis/apps/v1/deployments?watch=1", "watch")
	f.Add("//", "")
	f.Add("/%2e%2e/", "PATCH")
	g := &Gateway{sync: &syncer{}}
	g.sync.table.Store(&table{})
	f.Fuzz(func(t *testing.T, path, verb string) {
		r, err := askedRequest(url.Values{"path": {path}, "verb": {verb}}, &resource.User{})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "path: ") && !strings.HasPrefix(err.Error(), "verb: ") {
				t.Errorf("%v", err)
			}
			return
		}
		if e := g.explain(r); e.Request.Path != r.URL.Path || e.Answerer == "" {
			t.Errorf("%q: %+v", path, e)
		}
	})
}
