package proxy

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"portico/apiservice"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/authn"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
)

// Of proxied requests the gateway counts those that it answered itself, as the
// aggregator's; the server counts the others (docs/wire.md 1.6).
func TestProxiedRequestsAreCountedOnce(t *testing.T) {
	behind := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/g.example.com/v1/broken":
			panic(http.ErrAbortHandler)
		case "/apis/g.example.com/v1/moved":
			w.Header().Set("Location", "https://elsewhere.example.com/")
			w.WriteHeader(http.StatusFound)
		case "/apis/g.example.com/v1/failing":
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	refusing := frontOf(t, closedPort(t), upstream.Trust{})
	routes := map[string]*Route{
		"g.example.com":       {Name: "v1.g.example.com", Upstream: behind.up, Condition: apiservice.Passed()},
		"refused.example.com": {Name: "v1.refused.example.com", Upstream: refusing.up, Condition: apiservice.Passed()},
		"down.example.com":    {Name: "v1.down.example.com", Condition: apiservice.Condition{Status: "False", Reason: "MissingEndpoints"}},
	}
	metrics := metrics.New()
	server, err := filter.New(filter.Config{
		Authenticator: authn.Anonymous(), Metrics: metrics, Logger: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			act := resource.ActionFrom(r.Context())
			if rt := routes[act.Group]; rt != nil {
				(&Proxy{}).Send(w, r, rt)
				return
			}
			io.WriteString(w, "own")
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string, code int) {
		t.Helper()
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
	ask("/apis/g.example.com/v1/things", 200)
	ask("/apis/g.example.com/v1/things?watch=true", 200)
	ask("/apis/g.example.com/v1/failing", 500)
	ask("/apis/g.example.com/v1/broken", 503)
	ask("/apis/g.example.com/v1/moved", 502)
	ask("/apis/refused.example.com/v1/things", 503)
	ask("/apis/down.example.com/v1/things", 503)
	ask("/apis/own.example.com/v1/things", 200)

	families, err := metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() != "apiserver_request_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			text := ""
			for _, l := range m.GetLabel() {
				if slices.Contains([]string{"code", "component", "group"}, l.GetName()) {
					text += l.GetValue() + " "
				}
			}
			got = append(got, strings.TrimSpace(text))
		}
	}
	slices.Sort(got)
	want := []string{"200 apiserver own.example.com", "502 aggregator g.example.com", "503 aggregator down.example.com", "503 aggregator g.example.com", "503 aggregator refused.example.com"}
	if !slices.Equal(got, want) {
		t.Errorf("counted %q\nwant %q", got, want)
	}
}
