package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
)

// scrape returns the lines of the metrics that contain a text.
func scrape(m *metrics.Metrics, text string) []string {
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
	m := metrics.New()
	began, end := make(chan struct{}), make(chan struct{})
	s := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		began <- struct{}{}
		<-end
	}, func(c *testConfig) { c.Metrics = m })
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

// answerForMetrics answers 404 below /apis/made.up, counts for another component below /apis/remote,
// and 201 to POST.
func answerForMetrics(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/apis/made.up"):
		NotFound(w, r)
	case strings.HasPrefix(r.URL.Path, "/apis/remote"):
		filter.CountAs(r.Context(), "aggregator")
		if r.URL.Query().Has("down") {
			w.WriteHeader(503)
			return
		}
		filter.CountedElsewhere(r.Context())
	case r.Method == "POST":
		w.WriteHeader(201)
	}
}

func TestRequestMetrics(t *testing.T) {
	m := metrics.New()
	s := newTestServer(t, answerForMetrics, func(c *testConfig) { c.Metrics = m })
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

// What a request waited for others is in its duration and not in that which the
// server answers for; a dry run is not in the latter at all.
func TestWaitingIsLeftOut(t *testing.T) {
	m := metrics.New()
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("wait") {
			filter.AddWait(r.Context(), "mutating-webhook", time.Hour)
		}
	}, func(c *testConfig) { c.Metrics = m })
	do(s, "POST", pathPods+"?dryRun=All")
	do(s, "POST", pathPods)
	do(s, "POST", pathPods+"?wait=1")
	const labels = `component="apiserver",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"`
	for _, want := range []string{
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 2`,
		`apiserver_request_sli_duration_seconds_count{` + labels + `} 2`,
	} {
		if got := scrape(m, want); len(got) != 1 {
			t.Errorf("missing %s", want)
		}
	}
	of := func(metric string) (sum float64) {
		for _, line := range scrape(m, metric+"_sum{") {
			if !strings.Contains(line, `dry_run="All"`) {
				_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &sum)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return sum
	}
	if whole, own := of("apiserver_request_duration_seconds"), of("apiserver_request_sli_duration_seconds"); own <= 0 || own >= whole {
		t.Errorf("%v s of %v s", own, whole)
	}
}

// switched is an Authenticator that can be replaced.
type switched struct{ authn.Authenticator }

// Results and durations of authentication and authorization are counted.
func TestAccessMetrics(t *testing.T) {
	allow := authz.Func(func(_ context.Context, a *resource.Action) (authz.Decision, string, error) {
		switch a.Name {
		case "denied":
			return authz.Deny, "", nil
		case "broken":
			return authz.NoOpinion, "", errors.New("broken")
		case "unknown":
			return authz.NoOpinion, "", nil
		}
		return authz.Allow, "", nil
	})
	user := &switched{asJane{}}
	s := newTestServer(t, ok, func(c *testConfig) {
		c.Authenticator, c.Authorizer = user, allow
		c.Impersonation = func(next http.Handler) http.Handler { return next }
	})
	m := s.chain.Metrics()
	for _, name := range []string{"", "/x", "/denied", "/broken", "/unknown"} {
		do(s, "GET", pathPods+name)
	}
	for _, err := range []error{nil, errors.New("bad token")} {
		user.Authenticator = failing{err}
		do(s, "GET", pathPods)
	}
	for _, want := range []string{
		`authentication_attempts{result="success"} 5`,
		`authentication_attempts{result="failure"} 1`,
		`authentication_attempts{result="error"} 1`,
		`authentication_duration_seconds_count{result="success"} 5`,
		`authenticated_user_requests{username="other"} 5`,
		`authorization_attempts_total{result="allowed"} 2`,
		`authorization_attempts_total{result="denied"} 1`,
		`authorization_attempts_total{result="no-opinion"} 1`,
		`authorization_attempts_total{result="error"} 1`,
		`authorization_duration_seconds_count{result="allowed"} 2`,
		`apiserver_request_filter_duration_seconds_count{filter="authentication"} 7`,
		`apiserver_request_filter_duration_seconds_count{filter="impersonation"} 5`,
		`apiserver_request_filter_duration_seconds_count{filter="authorization"} 5`,
		`apiserver_client_certificate_expiration_seconds_count 0`,
	} {
		if got := scrape(m, want); len(got) != 1 {
			t.Errorf("missing %s among %q", want, scrape(m, want[:strings.LastIndex(want, "{")+1]))
		}
	}
}

// The alert of certificates that are about to expire goes by what is left of
// them.
func TestCertificateExpiry(t *testing.T) {
	m := metrics.New()
	s := newTestServer(t, ok, func(c *testConfig) { c.Metrics = m })
	r := httptest.NewRequest("GET", pathPods, nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: time.Now().Add(36 * time.Hour)}}}
	s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	for le, want := range map[string]string{"86400": "0", "172800": "1", "+Inf": "1"} {
		line := `apiserver_client_certificate_expiration_seconds_bucket{le="` + le + `"} ` + want
		if got := scrape(m, line); len(got) != 1 {
			t.Errorf("missing %s", line)
		}
	}
}

// A client that invents names, verbs and users makes a bounded number of series even if
// the server accepts all of them.
func TestSeriesAreBounded(t *testing.T) {
	m := metrics.New()
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("abort") {
			panic(http.ErrAbortHandler)
		}
	}, func(c *testConfig) { c.Metrics = m })
	request := func(i int) {
		defer func() { _ = recover() }() // of those that are aborted
		path := fmt.Sprintf("/apis/g%d/v%d/namespaces/n%d/r%d/o%d/s%d", i, i, i, i, i, i)
		switch i % 4 {
		case 0:
			do(s, "GET", path+"?watch=1", "User-Agent", fmt.Sprint(i))
		case 1:
			do(s, fmt.Sprintf("VERB%d", i), path, "X-Request-Id", fmt.Sprint(i))
		case 2:
			do(s, "POST", path+fmt.Sprintf("?dryRun=%d&fieldValidation=%d", i, i), "Content-Type", fmt.Sprint(i))
		default:
			do(s, "GET", path+"?abort=1")
		}
	}
	lines := func() int { return len(scrape(m, "apiserver_")) }
	const bound = 4096 // of the label sets with a resource; those without come on top of it
	for i := range 2 * bound {
		request(i)
	}
	if n := len(scrape(m, "apiserver_request_duration_seconds_count")); n < bound || n > bound+16 {
		t.Errorf("%d series", n)
	}
	before := lines()
	for i := range 400 {
		request(2*bound + i)
	}
	if after := lines(); after != before {
		t.Errorf("%d lines became %d", before, after)
	}
}

func TestTerminations(t *testing.T) {
	m := metrics.New()
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(c *testConfig) { c.Metrics = m })
	do(s, "GET", pathPods+"?timeout=1ms")
	if got := scrape(m, `apiserver_request_post_timeout_total{source="timeout-handler",status="ok"} 1`); len(got) != 1 {
		t.Errorf("the handler that went on: %q", scrape(m, "post_timeout"))
	}
	s.chain.Lifecycle().Reject()
	do(s, "GET", pathPods)
	for _, code := range []string{"504", "429"} {
		if got := scrape(m, `apiserver_request_terminations_total{code="`+code+`"`); len(got) != 1 || !strings.HasSuffix(got[0], " 1") {
			t.Errorf("%s: got %q", code, got)
		}
	}
}

// A proxied request that exceeds its deadline is counted as one termination.
func TestTerminationOfProxied(t *testing.T) {
	m := metrics.New()
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
		filter.CountAs(r.Context(), "aggregator")
		<-r.Context().Done()
	}, func(c *testConfig) { c.Metrics = m })
	do(s, "GET", pathPods+"?timeout=1ms")
	if got := scrape(m, `apiserver_request_terminations_total{`); len(got) != 1 || !strings.HasSuffix(got[0], " 1") {
		t.Errorf("got %q", got)
	}
}
