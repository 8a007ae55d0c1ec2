package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// A redirect to the same API reaches the client, which asks again; one that leads
// elsewhere does not.
func TestPlainRedirects(t *testing.T) {
	var location string
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusSeeOther)
	}
	bare, prefixed := plainFront(t, "", answer), plainFront(t, "/api", answer)
	for _, tc := range []struct {
		front    *httptest.Server
		location string
		want     string // "" is a 502
	}{
		{bare, "/jobs/7", shopRoot + "/jobs/7"},
		{bare, "http://shop/jobs/7?x=1", shopRoot + "/jobs/7?x=1"},
		{bare, "7", "7"},
		{bare, "../jobs/7", "../jobs/7"},
		{bare, bare.URL + shopRoot + "/jobs/7", shopRoot + "/jobs/7"},
		{prefixed, "/api/jobs/7", shopRoot + "/jobs/7"},
		{prefixed, "/api", shopRoot},
		{prefixed, "/internal/7", ""},
		{bare, "https://elsewhere.example.com/jobs/7", ""},
		{bare, "//elsewhere.example.com/jobs/7", ""},
		{bare, `\\elsewhere.example.com/jobs/7`, ""},
		{bare, `/\elsewhere.example.com/jobs/7`, shopRoot + "/%5Celsewhere.example.com/jobs/7"},
		{bare, "javascript:alert(1)", ""},
		{bare, "http://%zz", ""},
	} {
		location = tc.location
		res, body := askPlain(t, tc.front, "GET", shopRoot+"/jobs")
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

// The server is told what the client asked for, and not what it is asked for
// itself.
func TestPlainForwardedURI(t *testing.T) {
	front := plainFront(t, "/api", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.RequestURI+" "+r.Header.Get("X-Forwarded-Uri"))
	})
	const asked = shopRoot + "/pets/a%20b?x=%20"
	if _, body := askPlain(t, front, "GET", asked, "X-Forwarded-Uri", "/evil"); body != "/api/pets/a%20b?x=%20 "+asked {
		t.Error(body)
	}
}

// Who says that it takes events of a REST server has no deadline; nobody else is
// let off by saying so.
func TestPlainStreams(t *testing.T) {
	g := &Gateway{sync: &syncer{}}
	g.sync.table.Store(&table{routes: map[schema.GroupVersion]*route{
		{Group: "shop.example.com", Version: "v1"}: {plain: &plainAPI{}}, {Version: "v1"}: {},
	}})
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
		if got := g.streams(r, resource.ParseAction(r)); got != tc.want {
			t.Errorf("%s %s as %s: %v", tc.method, tc.path, tc.accept, got)
		}
	}
}
