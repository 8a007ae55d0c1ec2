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

// A redirect within the API reaches the client, which sends a new request; one that
// leads elsewhere does not.
func TestRESTRedirects(t *testing.T) {
	t.Parallel()
	var location string
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusSeeOther)
	}
	bare, prefixed := restFront(t, "", answer), restFront(t, "/api", answer)
	for _, tc := range []struct {
		front    *httptest.Server
		location string
		want     string // "" is a 502
	}{
		{bare, "/jobs/7", shopRoot + "/jobs/7"},
		{bare, "http://shop/jobs/7?x=1", shopRoot + "/jobs/7?x=1"},
		{bare, "7", shopRoot + "/7"},
		{bare, "?page=2", shopRoot + "/jobs?page=2"},
		{bare, "../jobs/7", shopRoot + "/jobs/7"}, // the server has nothing above /
		{bare, "/jobs/x/../7", shopRoot + "/jobs/7"},
		{bare, "/jobs/7/#a", shopRoot + "/jobs/7/#a"},
		{bare, bare.URL + shopRoot + "/jobs/7", shopRoot + "/jobs/7"},
		{prefixed, "/api/jobs/7", shopRoot + "/jobs/7"},
		{prefixed, "/api", shopRoot},
		{prefixed, "/internal/7", ""},
		{bare, "https://elsewhere.example.com/jobs/7", ""},
		{bare, "//elsewhere.example.com/jobs/7", ""},
		{bare, `\\elsewhere.example.com/jobs/7`, ""},
		{bare, `/\elsewhere.example.com/jobs/7`, ""},
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
		{bare, "http:/api/v1/namespaces/prod", ""},
		{bare, "http:api/v1/namespaces/prod", ""},
		{bare, "///api/v1/namespaces/prod", ""},
		{bare, "javascript:alert(1)", ""},
		{bare, "http://%zz", ""},
	} {
		location = tc.location
		res, body := askREST(t, tc.front, "GET", shopRoot+"/jobs")
		if tc.want == "" {
			if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, errRedirect.Error()) || res.Header.Get("Location") != "" {
				t.Errorf("%s: %d %q %s", tc.location, res.StatusCode, res.Header.Get("Location"), body)
			}
			continue
		}
		if got := res.Header.Get("Location"); res.StatusCode != http.StatusSeeOther || got != tc.want {
			t.Errorf("%s: %d %q, want %q", tc.location, res.StatusCode, got, tc.want)
		}
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
