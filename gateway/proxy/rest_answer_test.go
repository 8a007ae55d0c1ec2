package proxy

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/serve/filter"
)

// The Location of an answer leads to the API through the gateway, to another host unchanged, or
// is removed. A redirect that leads elsewhere than to the API is a 502.
func TestRESTLocation(t *testing.T) {
	t.Parallel()
	var location string
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(map[string]int{"GET": http.StatusSeeOther, "POST": http.StatusCreated}[r.Method])
	}
	bare, prefixed := restFront(t, "", answer), restFront(t, "/api", answer)
	const elsewhere = "https://elsewhere.example.com/jobs/7"
	const inert = "-" // a client follows it in redirects only
	for _, tc := range []struct {
		front          *httptest.Server
		location, want string // "" is removed, and only a path of the API is followed in redirects
	}{
		{bare, "/jobs/7", shopRoot + "/jobs/7"},
		{bare, "http://shop/jobs/7?x=1#y", shopRoot + "/jobs/7?x=1#y"},
		{bare, "7", shopRoot + "/7"},
		{bare, "?page=2", shopRoot + "/jobs?page=2"},
		{bare, "../jobs/7", shopRoot + "/jobs/7"}, // the server has nothing above /
		{bare, "/jobs/x/../7", shopRoot + "/jobs/7"},
		{bare, "/jobs/7/#a", shopRoot + "/jobs/7/#a"},
		{bare, shopRoot + "/jobs/7", shopRoot + "/jobs/7"}, // by X-Forwarded-Prefix
		{bare, bare.URL + shopRoot + "/jobs/7", shopRoot + "/jobs/7"},
		{bare, strings.Replace(bare.URL, "http:", "https:", 1) + shopRoot + "/jobs/7", shopRoot + "/jobs/7"},
		{prefixed, "/api/jobs/7", shopRoot + "/jobs/7"},
		{prefixed, "//shop/api/jobs/7", shopRoot + "/jobs/7"},
		{prefixed, "/api", shopRoot},
		{prefixed, "/internal/7", ""},
		{prefixed, "/apiary/7", ""},
		{bare, elsewhere, elsewhere},
		{bare, "//elsewhere.example.com/jobs/7", "//elsewhere.example.com/jobs/7"},
		{bare, `\\elsewhere.example.com/jobs/7`, inert},
		{bare, `/\elsewhere.example.com/jobs/7`, inert},
		// Out of the API, if dots are read before or after unescaping.
		{bare, "../../../../api/v1/namespaces/prod", shopRoot + "/api/v1/namespaces/prod"},
		{bare, "/svc/../../../api/v1/namespaces/prod", shopRoot + "/api/v1/namespaces/prod"},
		{bare, shopRoot + "/../../../api/v1/namespaces/prod", shopRoot + "/api/v1/namespaces/prod"},
		{bare, bare.URL + shopRoot + "/../../../api/v1/namespaces/prod", shopRoot + "/api/v1/namespaces/prod"},
		{prefixed, "../../../../internal", ""},
		{prefixed, "/api/../internal", ""},
		{prefixed, "/api/jobs/..%2f..%2f..%2f..%2fapi", ""},
		{bare, "/%2e%2e/%2E%2E/%2e./api/v1/namespaces/prod", ""},
		{bare, "%2e%2e/%2e%2e/%2e%2e/api/v1/namespaces/prod", ""},
		{bare, "/..;/..;x=1/..;/api/v1/namespaces/prod", ""},
		{bare, `/..\..\..\api\v1\namespaces\prod`, ""},
		{bare, "/..%5c..%5c..%5capi/v1/namespaces/prod", ""},
		{bare, "http:/api/v1/namespaces/prod", inert},
		{bare, "http:api/v1/namespaces/prod", inert},
		{bare, "///api/v1/namespaces/prod", inert},
		{bare, "javascript:alert(1)", inert},
		{bare, "http://%zz", ""},
	} {
		location = tc.location
		res, body := askREST(t, tc.front, "GET", shopRoot+"/jobs")
		if got := res.Header.Get("Location"); !strings.HasPrefix(tc.want, shopRoot) {
			if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, errRedirect.Error()) || got != "" {
				t.Errorf("redirect to %s: %d %q %s", tc.location, res.StatusCode, got, body)
			}
		} else if res.StatusCode != http.StatusSeeOther || got != tc.want {
			t.Errorf("redirect to %s: %d %q, want %q", tc.location, res.StatusCode, got, tc.want)
		}
		res, _ = askREST(t, tc.front, "POST", shopRoot+"/jobs")
		if got := res.Header.Get("Location"); tc.want != inert && (res.StatusCode != http.StatusCreated || got != tc.want) {
			t.Errorf("%s: %d %q, want %q", tc.location, res.StatusCode, got, tc.want)
		}
	}
	location = "/jobs/a%2Fb" // one name of the server's, but no path that the gateway forwards
	if res, _ := askREST(t, bare, "POST", shopRoot+"/jobs"); res.Header.Get("Location") != shopRoot+location {
		t.Errorf("an escaped slash: %q", res.Header.Get("Location"))
	}
}

// X-Forwarded-Uri is the path of the client's request, not of the server's.
func TestRESTForwardedURI(t *testing.T) {
	t.Parallel()
	front := restFront(t, "/api", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.RequestURI+" "+r.Header.Get("X-Forwarded-Uri"))
	})
	const asked = shopRoot + "/pets/a%20b?x=%20"
	if _, body := askREST(t, front, "GET", asked, "X-Forwarded-Uri", "/evil"); body != "/api/pets/a%20b?x=%20 "+asked {
		t.Error(body)
	}
}

// A GET of a REST server that accepts a stream of events has no deadline; other
// requests with that header have one.
func TestRESTStreams(t *testing.T) {
	t.Parallel()
	routes := &Table{Routes: map[schema.GroupVersion]*Route{
		{Group: "shop.example.com", Version: "v1"}: {REST: &REST{}}, {Version: "v1"}: {},
	}}
	p := New(Config{Table: func() *Table { return routes }})
	for _, tc := range []struct {
		method, path, accept string
		want                 bool
	}{
		{"GET", shopRoot + "/pets/1/events", "text/event-stream", true},
		{"GET", shopRoot + "/pets", "application/json, Text/Event-Stream;q=0.9", true},
		{"GET", shopRoot + "/pets", "application/json", false},
		{"POST", shopRoot + "/pets", "text/event-stream", false},
		{"GET", shopRoot, "text/event-stream", false},
		{"GET", "/api/v1/pods", "text/event-stream", false},
		{"GET", "/apis/none.example.com/v1/pods", "text/event-stream", false},
	} {
		r := httptest.NewRequest(tc.method, tc.path, nil)
		r.Header.Set("Accept", tc.accept)
		if got := p.Streams(r, resource.ParseAction(r)); got != tc.want {
			t.Errorf("%s %s as %s: %v", tc.method, tc.path, tc.accept, got)
		}
	}
}

// A stream of events outlasts the deadline of other requests, and each event arrives when it
// is sent.
func TestRESTStreamLasts(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	rt := routeTo(upstreamOnSocket(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" {
			<-r.Context().Done()
			return
		}
		for _, event := range []string{"data: one\n", "data: two\n"} {
			_, _ = io.WriteString(w, event)
			flush(w)
			select {
			case <-goOn:
			case <-r.Context().Done():
				return
			}
		}
	})))
	rt.REST = &REST{root: shopRoot}
	routes := &Table{Routes: map[schema.GroupVersion]*Route{{Group: "shop.example.com", Version: "v1"}: rt}}
	p := New(Config{Table: func() *Table { return routes }})
	front := httptest.NewServer(newChain(t, along(rt), func(c *filter.Config) { c.RequestTimeout, c.LongRunning = 50*time.Millisecond, p.Streams }))
	defer front.Close()
	get := func(accept string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+shopRoot+"/pets", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	events := get("text/event-stream")
	lines := bufio.NewScanner(events.Body)
	if !lines.Scan() || lines.Text() != "data: one" {
		t.Fatalf("%d %q", events.StatusCode, lines.Text())
	}
	if other := get("application/json"); other.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("another request that lasts: %d", other.StatusCode)
	}
	close(goOn)
	if !lines.Scan() || lines.Text() != "data: two" {
		t.Errorf("the stream broke off: %q, %v", lines.Text(), lines.Err())
	}
}
