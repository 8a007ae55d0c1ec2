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
)

// scrape returns the lines of the server's metrics that contain a text.
func scrape(s *testServer, text string) []string {
	w := httptest.NewRecorder()
	s.chain.Metrics().Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var lines []string
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if strings.Contains(line, text) && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// wantMetrics checks that the server's metrics have the lines.
func wantMetrics(t *testing.T, s *testServer, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if got := scrape(s, want); len(got) != 1 || got[0] != want {
			t.Errorf("missing %s among %q", want, scrape(s, want[:strings.IndexAny(want, "{ ")]))
		}
	}
}

// answerForMetrics answers 404 below /apis/made.up, counts for another component below /apis/remote,
// and 201 to POST.
func answerForMetrics(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/apis/made.up"):
		http.NotFound(w, r)
	case strings.HasPrefix(r.URL.Path, "/apis/remote"):
		filter.CountAs(r.Context(), "aggregator")
		if r.URL.Query().Has("down") {
			w.WriteHeader(503)
			return
		}
		filter.CountedElsewhere(r.Context())
	case r.URL.Query().Has("watch"):
		w.WriteHeader(200)
	case r.Method == "POST":
		w.WriteHeader(201)
	}
}

// Requests are counted by verb, resource, scope, component and code. Those that another
// server counts are left out, and resources that do not exist make one series.
func TestRequestMetrics(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, answerForMetrics)
	for _, request := range [][]string{
		{"GET", pathPods}, {"GET", pathPods}, {"GET", pathPods + "?watch=1"}, {"POST", pathPods + "?dryRun=All"},
		{"PATCH", "/apis/apps/v1/namespaces/ns/deployments/x/status", "Content-Type", "application/apply-patch+yaml"},
		{"BREW", "/coffee"}, {"GET", "/readyz"}, {"GET", "/openapi/v3"}, {"GET", "/openapi/v3/apis/a/v1?hash=1"}, {"GET", "/openapi/v3/apis/b/v1"},
		{"GET", "/apis/remote/v1/things"}, {"GET", "/apis/remote/v1/things?down=1"},
	} {
		do(s, request[0], request[1], request[2:]...)
	}
	wantMetrics(t, s,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} 1`,
		`apiserver_request_total{code="201",component="apiserver",dry_run="All",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="status",verb="APPLY",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="",verb="other",version=""} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="openapi/v3",verb="GET",version=""} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="openapi/v3/",verb="GET",version=""} 2`,
		`apiserver_request_total{code="503",component="aggregator",dry_run="",group="remote",resource="",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_response_sizes_count{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="WATCH",version="v1"} 0`,
		`apiserver_current_inflight_requests{request_kind="readOnly"} 0`,
	)
	if got := scrape(s, `apiserver_request_total{code="200",component="aggregator"`); len(got) != 0 {
		t.Errorf("counted here and elsewhere: %q", got)
	}
	before := len(scrape(s, "apiserver_request_total"))
	for i := range 100 {
		do(s, "GET", fmt.Sprintf("/apis/made.up%d/v1/x%d", i, i))
	}
	if after := len(scrape(s, "apiserver_request_total")); after != before+1 {
		t.Errorf("100 made-up resources made %d series", after-before)
	}
}

// The time that a request waited for other programs is part of its duration, but not of its
// SLI duration, which dry runs do not have.
func TestWaitingIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
		filter.AddWait(r.Context(), "mutating-webhook", time.Hour)
	})
	do(s, "POST", pathPods)
	do(s, "POST", pathPods+"?dryRun=All")
	const series = `group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"`
	wantMetrics(t, s,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",`+series+`} 1`,
		`apiserver_request_sli_duration_seconds_count{component="apiserver",`+series+`} 1`,
		`apiserver_request_sli_duration_seconds_sum{component="apiserver",`+series+`} 0`,
	)
	if got := scrape(s, `apiserver_request_duration_seconds_sum{component="apiserver",dry_run="",`+series); len(got) != 1 || strings.HasSuffix(got[0], " 0") {
		t.Errorf("got the duration %q", got)
	}
}

// switched is an Authenticator that can be replaced.
type switched struct{ authn.Authenticator }

// Results and durations of authentication and authorization are counted, and what remains of
// client certificates.
func TestAccessMetrics(t *testing.T) {
	t.Parallel()
	user := &switched{authenticate(byHeader)}
	s := newTestServer(t, ok, func(c *testConfig) {
		c.Authenticator, c.Impersonation = user, impersonated
		c.Authorizer = authz.Func(func(_ context.Context, a *resource.Action) (authz.Decision, string, error) {
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
	})
	for _, name := range []string{"/x", "/denied", "/broken", "/unknown"} {
		do(s, "GET", pathPods+name)
	}
	r := httptest.NewRequest("GET", pathPods, nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: time.Now().Add(36 * time.Hour)}}}
	s.chain.ServeHTTP(httptest.NewRecorder(), r)
	for _, err := range []error{nil, errors.New("bad token")} {
		user.Authenticator = failing(err)
		do(s, "GET", pathPods)
	}
	wantMetrics(t, s,
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
		`apiserver_client_certificate_expiration_seconds_bucket{le="86400"} 0`,
		`apiserver_client_certificate_expiration_seconds_bucket{le="172800"} 1`,
		`apiserver_client_certificate_expiration_seconds_count 1`,
	)
}

// A request that the server ends is counted as one termination, also if it is proxied.
func TestTerminations(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
		filter.CountAs(r.Context(), "aggregator")
		<-r.Context().Done()
	})
	do(s, "GET", pathPods+"?timeout=1ms")
	wantMetrics(t, s, `apiserver_request_post_timeout_total{source="timeout-handler",status="ok"} 1`)
	s.chain.Lifecycle().Reject()
	do(s, "GET", pathPods)
	got := scrape(s, `apiserver_request_terminations_total{`)
	for i, code := range []string{"429", "504"} {
		if len(got) != 2 || !strings.Contains(got[i], `code="`+code+`"`) || !strings.HasSuffix(got[i], " 1") {
			t.Errorf("%s: got %q", code, got)
		}
	}
}
