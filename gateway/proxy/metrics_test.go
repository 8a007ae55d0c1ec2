package proxy

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"portico/apiservice"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
)

// Of proxied requests the gateway counts those that it answered itself, as the aggregator's;
// the server counts the others (docs/wire.md 1.6).
func TestProxiedRequestsAreCountedOnce(t *testing.T) {
	t.Parallel()
	behind, trust := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
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
	routes := map[string]*Route{
		"g.example.com":       routeTo(upstreamTo(t, trust, []string{behind.Listener.Addr().String()})),
		"refused.example.com": routeTo(upstreamTo(t, upstream.Trust{}, []string{closedPort(t)})),
		"down.example.com":    {Condition: apiservice.Condition{Status: "False", Reason: "MissingEndpoints"}},
	}
	metrics := metrics.New()
	server := newChain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rt := routes[resource.ActionFrom(r.Context()).Group]; rt != nil {
			along(rt)(w, r)
			return
		}
		io.WriteString(w, "own")
	}), func(c *filter.Config) { c.Metrics = metrics })
	for path, code := range map[string]int{
		"g.example.com/v1/things": 200, "g.example.com/v1/things?watch=true": 200, "g.example.com/v1/failing": 500, "g.example.com/v1/broken": 503,
		"g.example.com/v1/moved": 502, "refused.example.com/v1/things": 503, "down.example.com/v1/things": 503, "own.example.com/v1/things": 200,
	} {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest("GET", "/apis/"+path, nil))
		if w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
	var got []string
	for _, key := range slices.Sorted(maps.Keys(gathered(t, metrics.Registry()))) {
		if labels, ok := strings.CutPrefix(key, "apiserver_request_total{"); ok {
			got = append(got, labels[:strings.Index(labels, ",resource")])
		}
	}
	want := []string{
		"code=200,component=apiserver,dry_run=,group=own.example.com", "code=502,component=aggregator,dry_run=,group=g.example.com",
		"code=503,component=aggregator,dry_run=,group=down.example.com", "code=503,component=aggregator,dry_run=,group=g.example.com",
		"code=503,component=aggregator,dry_run=,group=refused.example.com",
	}
	if !slices.Equal(got, want) {
		t.Errorf("counted %q\nwant %q", got, want)
	}
}
