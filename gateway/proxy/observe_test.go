package proxy

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/apiservice/explain"
	"portico/gateway/accesslog"
	"portico/gateway/upstream"
	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/authz"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

// observed is a gateway's filters and proxy before one server with several endpoints,
// with access log, metrics and traces.
type observed struct {
	*Proxy
	metrics   *metrics.Metrics
	accessLog *accesslog.Log
	chain     http.Handler
	out       bytes.Buffer // of the access log
	asked     atomic.Int32 // checks of the permission
}

// asks authenticates by the header in which tests name the user.
type asks struct{}

func (asks) Authenticate(r *http.Request) (*resource.User, bool, error) {
	u := &resource.User{Name: r.Header.Get("Test-User"), Groups: []string{resource.GroupAuthenticated}}
	if u.Name == "admin" {
		u.Groups = append(u.Groups, resource.GroupMasters)
	}
	return u, true, nil
}

// observe starts the proxy of the group g.example.com before a server with the handler
// behind, and an endpoint that refuses connections, which is tried first.
func observe(t *testing.T, behind http.HandlerFunc) (o *observed, refused, good string) {
	t.Helper()
	listening := httptest.NewTLSServer(behind)
	t.Cleanup(listening.Close)
	up := upstreamTo(t, trustOf(listening), []string{closedPort(t), listening.Listener.Addr().String()}, func(c *upstream.Config) { c.Policy.Balance = backend.RoundRobin })
	o = &observed{metrics: metrics.New()}
	routes := map[schema.GroupVersion]*Route{
		{Group: "g.example.com", Version: "v1"}:    {Name: "v1.g.example.com", Upstream: up, Condition: apiservice.Passed()},
		{Group: "down.example.com", Version: "v1"}: {Name: "v1.down.example.com", Upstream: up, Condition: apiservice.Condition{Status: "False", Reason: "MissingEndpoints", Message: "none"}},
		{Group: "own.example.com", Version: "v1"}:  {Name: "v1.own.example.com", Local: true, Condition: apiservice.Local()},
	}
	upstreams := map[string]*upstream.Upstream{"apiservice/v1.g.example.com": up.Upstream}
	counts := NewTraffic()
	counts.Watch(routes, upstreams)
	o.metrics.Registry().MustRegister(append(counts.Metrics(), NewUpstreamMetrics(func() map[string]*upstream.Upstream { return upstreams }))...)
	var err error
	if o.accessLog, err = accesslog.Open(accesslog.Config{Path: accesslog.Standard, Output: &o.out}); err != nil {
		t.Fatal(err)
	}
	mayDebug := authz.Func(func(_ context.Context, a *resource.Action) (authz.Decision, string, error) {
		o.asked.Add(1)
		if a.Path == explain.Path && a.Verb == "get" && a.User.Name == "admin" {
			return authz.Allow, "", nil
		}
		return authz.NoOpinion, "", nil
	})
	o.Proxy = New(Config{Table: func() *Table { return &Table{Routes: routes} }, Authorizer: mayDebug, Logged: true})
	o.serve(t, nil)
	endpoints := up.Endpoints()
	return o, endpoints[0].URL, endpoints[1].URL
}

// serve makes the chain.
func (o *observed) serve(t *testing.T, tracer *tracing.Tracer) {
	t.Helper()
	o.chain = newChain(t, o.DebugHeaders(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if act := resource.ActionFrom(r.Context()); act.IsResource {
			o.Send(w, r, o.lookup(act.Group, act.Version))
		}
	})), func(c *filter.Config) {
		c.Authenticator, c.Metrics, c.AccessLog, c.Tracer, c.TrustsTrace = asks{}, o.metrics, o.accessLog, tracer, filter.TrustedTracers
	})
}

func (o *observed) do(method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	o.chain.ServeHTTP(w, r)
	return w
}

// lines ends the access log and returns what it has.
func (o *observed) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = o.accessLog.Run(ctx)
	for text := range strings.Lines(o.out.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		lines = append(lines, line)
	}
	return lines
}

// A request that was sent twice has both attempts in metrics, access log and debug
// headers.
func TestObservedRetry(t *testing.T) {
	t.Parallel()
	var got http.Header
	o, refused, good := observe(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.Header().Set("X-Portico-Backend", "me")
		w.Header().Set("Server-Timing", "secret;dur=1")
	})
	w := o.do("GET", shortPath, "Test-User", "admin", "X-Portico-Debug", "1", "X-Portico-Backend", "mine")
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if got["X-Portico-Debug"] != nil || got["X-Portico-Backend"] != nil {
		t.Errorf("the server got %v", got)
	}
	server := `apiservice/v1.g.example.com; apiservice="v1.g.example.com"; endpoint="` + good + `"; attempts=2`
	if h := w.Header()["X-Portico-Backend"]; len(h) != 1 || h[0] != server {
		t.Errorf("X-Portico-Backend: %q, want %q", h, server)
	}
	timing := regexp.MustCompile(`^gateway;dur=\d+\.\d{3}, upstream;dur=\d+\.\d{3}$`)
	if h := w.Header()["Server-Timing"]; len(h) != 1 || !timing.MatchString(h[0]) {
		t.Errorf("Server-Timing: %q", h)
	}
	values := gathered(t, o.metrics.Registry())
	const labels = "{apiservice=v1.g.example.com,backend=apiservice/v1.g.example.com,"
	for key, want := range map[string]float64{
		"portico_upstream_requests_total" + labels + "code=none,endpoint=" + refused + ",verb=LIST}":                    1,
		"portico_upstream_requests_total" + labels + "code=2xx,endpoint=" + good + ",verb=LIST}":                        1,
		"portico_upstream_response_header_seconds" + labels + "endpoint=" + good + "}":                                  1,
		"portico_gateway_request_overhead_seconds" + labels + "endpoint=" + good + "}":                                  1,
		"portico_upstream_retries_total{backend=apiservice/v1.g.example.com,endpoint=" + good + "}":                     1,
		"portico_upstream_errors_total{backend=apiservice/v1.g.example.com,endpoint=" + refused + "}":                   1,
		"portico_upstream_endpoint_state{backend=apiservice/v1.g.example.com,endpoint=" + refused + ",state=Unhealthy}": 1,
		"portico_upstream_endpoint_state{backend=apiservice/v1.g.example.com,endpoint=" + good + ",state=Unknown}":      1,
		"portico_upstream_endpoint_state{backend=apiservice/v1.g.example.com,endpoint=" + good + ",state=Unhealthy}":    0,
		"portico_upstream_queue_length{backend=apiservice/v1.g.example.com}":                                            0,
		"portico_upstream_requests_in_flight{backend=apiservice/v1.g.example.com,endpoint=" + good + "}":                0,
	} {
		if n, ok := values[key]; !ok || n != want {
			t.Errorf("%s: got %v, %v; want %v", key, n, ok, want)
		}
	}
	line := o.lines(t)[0]
	if line["attempts"] != 2.0 || line["endpoint"] != good || line["apiService"] != "v1.g.example.com" || line["code"] != 200.0 || line["upstreamTook"].(float64) <= 0 {
		t.Errorf("the access log has %v", line)
	}
}

// Debug headers, also of answers that the gateway makes itself, are for users that ask for
// them and have the permission, which is checked once for each request.
func TestDebugHeaders(t *testing.T) {
	t.Parallel()
	o, _, _ := observe(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(headerBackend, "theirs")
		w.Header().Set(headerTiming, "theirs;dur=1")
	})
	timing := regexp.MustCompile(`^gateway;dur=\d+\.\d{3}$`)
	for path, want := range map[string]struct {
		code    int
		backend string
	}{
		"/apis":                            {200, "gateway"},
		"/apis/down.example.com/v1/things": {503, `gateway; apiservice="v1.down.example.com"`},
		shortPath:                          {200, ""}, // of the server
	} {
		for user, allowed := range map[string]bool{"admin": true, "jane": false} {
			o.asked.Store(0)
			h := o.do("GET", path, "Test-User", user, headerDebug, "1")
			if n := o.asked.Load(); n != 1 {
				t.Errorf("%s: the permission of %s is checked %d times", path, user, n)
			}
			backend, dur := h.Header().Get(headerBackend), h.Header().Get(headerTiming)
			switch {
			case h.Code != want.code:
				t.Errorf("%s: %d", path, h.Code)
			case !allowed && (backend != "" || dur != ""):
				t.Errorf("%s for %s: %q %q", path, user, backend, dur)
			case allowed && want.backend != "" && (backend != want.backend || !timing.MatchString(dur)):
				t.Errorf("%s: %q %q, want %q", path, backend, dur, want.backend)
			case allowed && want.backend == "" && (!strings.HasPrefix(backend, "apiservice/") || timing.MatchString(dur)):
				t.Errorf("%s: %q %q, want those of a server", path, backend, dur)
			}
		}
		if h := o.do("GET", path, "Test-User", "admin").Header(); h[headerBackend] != nil || h[headerTiming] != nil {
			t.Errorf("%s has headers that were not asked for: %v", path, h)
		}
	}
}

// A long-running request is counted while it is open, and in the access log at its end.
func TestObservedLongRunning(t *testing.T) {
	t.Parallel()
	begun, done := make(chan struct{}), make(chan struct{})
	o, _, good := observe(t, func(w http.ResponseWriter, r *http.Request) {
		flush(w)
		close(begun)
		<-done
	})
	ended := make(chan struct{})
	go func() { defer close(ended); o.do("GET", watchPath) }()
	<-begun
	key := "portico_upstream_longrunning_requests{apiservice=v1.g.example.com,backend=apiservice/v1.g.example.com,endpoint=" + good + "}"
	await.Until(t, "the watch is counted", func() bool { return gathered(t, o.metrics.Registry())[key] == 1 })
	close(done)
	<-ended
	values := gathered(t, o.metrics.Registry())
	if values[key] != 0 {
		t.Errorf("%v are open", values[key])
	}
	for key, n := range values {
		if strings.HasPrefix(key, "portico_upstream_request_duration_seconds") && strings.Contains(key, good) && n != 0 {
			t.Errorf("%s: the time of a watch is counted", key)
		}
	}
}

// Every attempt has a span, and the span of the server that answers is below it.
func TestTraceOfAttempts(t *testing.T) {
	t.Parallel()
	var got string
	o, refused, good := observe(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Get("Traceparent") })
	tracer, spans := collected(t)
	o.cfg.Traced = true
	o.metrics = metrics.New()
	o.serve(t, tracer)
	const said = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	o.do("GET", shortPath, "Test-User", "admin", "Traceparent", said)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = tracer.Run(ctx)
	byName := map[string]*otlp.Span{}
	for range 3 {
		span := <-spans
		name := span.GetName()
		for _, a := range span.GetAttributes() {
			if a.GetKey() == "server.address" {
				name = a.GetValue().GetStringValue()
			}
		}
		byName[name] = span
	}
	server, first, second := byName["GET /apis/g.example.com/v1/things"], byName[refused], byName[good]
	if server == nil || first == nil || second == nil {
		t.Fatalf("got %v", byName)
	}
	if hex.EncodeToString(server.GetTraceId()) != said[3:35] || hex.EncodeToString(server.GetParentSpanId()) != said[36:52] {
		t.Errorf("the span is not of the client's trace: %v", server)
	}
	for _, attempt := range []*otlp.Span{first, second} {
		if hex.EncodeToString(attempt.GetParentSpanId()) != hex.EncodeToString(server.GetSpanId()) {
			t.Errorf("the span of an attempt has another parent: %v", attempt)
		}
	}
	if first.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR || second.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("got %v, %v", first.GetStatus(), second.GetStatus())
	}
	if want := "00-" + said[3:35] + "-" + hex.EncodeToString(second.GetSpanId()) + "-01"; got != want {
		t.Errorf("the server got %s, want %s", got, want)
	}
	if line := o.lines(t)[0]; line["traceID"] != said[3:35] {
		t.Errorf("the access log has %v", line)
	}
	// A trace that is not sampled has that in its header.
	o.do("GET", shortPath, "Test-User", "jane", "Traceparent", said)
	if !strings.HasSuffix(got, "-00") || strings.Contains(got, said[3:35]) {
		t.Errorf("the server got %s", got)
	}
}

// collected returns a tracer that samples only traces that others have begun, and the
// spans that it sends.
func collected(t *testing.T) (*tracing.Tracer, chan *otlp.Span) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &traceReceiver{got: make(chan *otlp.Span, 100)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	tracer, err := tracing.New(tracing.Config{Endpoint: listener.Addr().String()}, tracing.Options{Service: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return tracer, r.got
}

type traceReceiver struct {
	collector.UnimplementedTraceServiceServer
	got chan *otlp.Span
}

func (r *traceReceiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, resourceSpans := range request.GetResourceSpans() {
		for _, scope := range resourceSpans.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.got <- span
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}
