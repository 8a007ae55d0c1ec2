package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"portico/resource"
)

// scrape returns the lines of the metrics that contain a text.
func scrape(m *Metrics, text string) []string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var lines []string
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if strings.Contains(line, text) && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestLongRunningIsCounted(t *testing.T) {
	m := NewMetrics()
	began, end := make(chan struct{}), make(chan struct{})
	s := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		began <- struct{}{}
		<-end
	}, func(c *Config) { c.Metrics = m })
	watch := inBackground(s, pathPods+"?watch=1")
	<-began
	const line = `apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} `
	if got := scrape(m, "apiserver_longrunning_requests{"); len(got) != 1 || got[0] != line+"1" {
		t.Errorf("got %q", got)
	}
	close(end)
	<-watch
	if got := scrape(m, "apiserver_longrunning_requests{"); len(got) != 1 || got[0] != line+"0" {
		t.Errorf("got %q", got)
	}
}

// answerForMetrics is unknown below /apis/made.up, somebody else's below
// /apis/remote, and creates what is posted.
func answerForMetrics(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/apis/made.up"):
		NotFound(w, r)
	case strings.HasPrefix(r.URL.Path, "/apis/remote"):
		CountAs(r.Context(), "aggregator")
		if r.URL.Query().Has("down") {
			w.WriteHeader(503)
			return
		}
		CountedElsewhere(r.Context())
	case r.Method == "POST":
		w.WriteHeader(201)
	}
}

func TestRequestMetrics(t *testing.T) {
	m := NewMetrics()
	s := newTestServer(t, answerForMetrics, func(c *Config) { c.Metrics = m })
	do(s, "GET", pathPods)
	do(s, "GET", pathPods)
	do(s, "GET", pathPods+"?watch=1")
	do(s, "POST", pathPods+"?dryRun=All")
	do(s, "PATCH", "/apis/apps/v1/namespaces/ns/deployments/x/status", "Content-Type", "application/apply-patch+yaml")
	do(s, "BREW", "/coffee")
	do(s, "GET", "/readyz")
	do(s, "GET", "/apis/remote/v1/things")
	do(s, "GET", "/apis/remote/v1/things?down=1")
	for _, want := range []string{
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} 1`,
		`apiserver_request_total{code="201",component="apiserver",dry_run="All",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="status",verb="APPLY",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="",verb="other",version=""} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 1`,
		`apiserver_request_total{code="503",component="aggregator",dry_run="",group="remote",resource="",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_response_sizes_count{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_current_inflight_requests{request_kind="readOnly"} 0`,
	} {
		if got := scrape(m, want); len(got) != 1 {
			t.Errorf("missing %s", want)
		}
	}
	if got := scrape(m, `apiserver_request_total{code="200",component="aggregator"`); len(got) != 0 {
		t.Errorf("counted here and elsewhere: %q", got)
	}
	before := len(scrape(m, "apiserver_request_total"))
	for i := range 100 {
		do(s, "GET", fmt.Sprintf("/apis/made.up%d/v1/x%d", i, i))
	}
	if after := len(scrape(m, "apiserver_request_total")); after != before+1 {
		t.Errorf("100 made-up resources made %d series", after-before)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	m := NewMetrics()
	for i := range maxSeries + 100 {
		m.seriesFor(labels{verb: "GET", resource: fmt.Sprint(i)}, 200).counter(200).Inc()
	}
	if n := len(m.series); n > maxSeries+1 {
		t.Errorf("%d series", n)
	}
}

func TestTerminations(t *testing.T) {
	m := NewMetrics()
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(c *Config) { c.Metrics = m })
	do(s, "GET", pathPods+"?timeout=1ms")
	s.life.refusing.Store(true)
	do(s, "GET", pathPods)
	for _, code := range []string{"504", "429"} {
		if got := scrape(m, `apiserver_request_terminations_total{code="`+code+`"`); len(got) != 1 || !strings.HasSuffix(got[0], " 1") {
			t.Errorf("%s: got %q", code, got)
		}
	}
}

func BenchmarkCount(b *testing.B) {
	m := NewMetrics()
	r := httptest.NewRequest("GET", pathPods, nil)
	x := &exchange{action: resource.ParseAction(r)}
	b.ReportAllocs()
	for b.Loop() {
		m.request(r, x, 200, 1)
	}
}
