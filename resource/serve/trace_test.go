package serve

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"portico/resource"
	"portico/resource/tracing"
)

// spans is a collector of OTLP.
type spans struct {
	collector.UnimplementedTraceServiceServer
	got chan *otlp.Span
}

func (s *spans) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, r := range request.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.got <- span
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// newCollector returns a collector and its address.
func newCollector(t *testing.T) (*spans, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &spans{got: make(chan *otlp.Span, 100)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s, listener.Addr().String()
}

func TestTrace(t *testing.T) {
	got, address := newCollector(t)
	tracer, err := tracing.New(tracing.Config{Endpoint: address, SamplesPerMillion: 1_000_000}, tracing.Options{Service: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var forwarded string
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		forwarded = r.Header.Get("Traceparent")
		w.WriteHeader(http.StatusBadGateway)
	}, func(c *Config) { c.Tracer, c.TrustsTrace = tracer, TrustedTracers })
	const said = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	do(s, "GET", pathPods+"/a", "Traceparent", said, "Audit-Id", "mine")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = tracer.Run(ctx)
	span := <-got.got
	if span.GetName() != "GET /api/v1/namespaces/{:namespace}/pods/{:name}" || span.GetStatus().GetMessage() != "Bad Gateway" {
		t.Errorf("got %v", span)
	}
	if len(span.GetLinks()) != 1 || strings.Contains(forwarded, said[3:35]) || !strings.HasSuffix(forwarded, "-01") {
		t.Errorf("a stranger's trace was taken up: %q, %v", forwarded, span)
	}
	attributes := map[string]any{}
	for _, a := range span.GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
		if a.GetKey() == "http.response.status_code" {
			attributes[a.GetKey()] = a.GetValue().GetIntValue()
		}
	}
	if attributes["audit-id"] != "mine" || attributes["http.response.status_code"] != int64(502) || attributes["url.path"] != pathPods+"/a" {
		t.Errorf("got %v", attributes)
	}
}

func TestTrustedTracers(t *testing.T) {
	for _, tc := range []struct {
		user *resource.User
		want bool
	}{
		{nil, false},
		{&resource.User{Name: "jane", Groups: []string{resource.GroupAuthenticated}}, false},
		{&resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}, true},
		{&resource.User{Name: "prometheus", Groups: []string{"system:monitoring"}}, true},
	} {
		if got := TrustedTracers(tc.user); got != tc.want {
			t.Errorf("%v: got %v", tc.user, got)
		}
	}
}

func TestRoute(t *testing.T) {
	for _, tc := range []struct {
		want   string
		action resource.Action
	}{
		{"", resource.Action{Path: "/nothing"}},
		{"", resource.Action{Path: "/"}},
		{"", resource.Action{Path: "/apis/a/v1/b/c"}},
		{"/healthz", resource.Action{Path: "/healthz"}},
		{"/readyz/{:check}", resource.Action{Path: "/readyz/etcd"}},
		{"/api", resource.Action{Path: "/api"}},
		{"/api/{:version}", resource.Action{Path: "/api/v1"}},
		{"/apis", resource.Action{Path: "/apis"}},
		{"/apis", resource.Action{Path: "/apis/"}},
		{"/apis/{:group}", resource.Action{Path: "/apis/a"}},
		{"/apis/{:group}/{:version}", resource.Action{Path: "/apis/a/v1"}},
		{"/openapi/v2", resource.Action{Path: "/openapi/v2"}},
		{"/openapi/v3/{:path}", resource.Action{Path: "/openapi/v3/apis/a/v1"}},
		{"/api/v1/nodes", resource.Action{IsResource: true, Version: "v1", Resource: "nodes"}},
		{"/apis/a/v1/b/c", resource.Action{IsResource: true, Group: "a", Version: "v1", Resource: "b", Subresource: "c"}},
		{"/apis/a/v1/namespaces/{:namespace}/b/{:name}/c", resource.Action{IsResource: true, Group: "a", Version: "v1", Namespace: "n", Resource: "b", Name: "x", Subresource: "c"}},
	} {
		if got := routeOf(&tc.action); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.action.Path, got, tc.want)
		}
	}
}
