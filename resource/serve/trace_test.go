package serve

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"portico/resource"
	"portico/resource/serve/filter"
	tracer "portico/resource/tracing"
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

// tracing returns a Tracer of all requests, and a function that ends it and returns the first
// span and its attributes.
func tracing(t *testing.T) (*tracer.Tracer, func() (*otlp.Span, map[string]any)) {
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
	all, err := tracer.New(tracer.Config{Endpoint: listener.Addr().String(), SamplesPerMillion: 1_000_000}, tracer.Options{Service: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return all, func() (*otlp.Span, map[string]any) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = all.Run(ctx)
		span, attributes := <-s.got, map[string]any{}
		for _, a := range span.GetAttributes() {
			attributes[a.GetKey()] = a.GetValue().GetStringValue()
			if n, ok := a.GetValue().GetValue().(*common.AnyValue_IntValue); ok {
				attributes[a.GetKey()] = n.IntValue
			}
		}
		return span, attributes
	}
}

// A sampled request has a span with its route, status and Audit-ID. The trace of a client
// that is not trusted is linked and not continued.
func TestTrace(t *testing.T) {
	t.Parallel()
	tracer, collected := tracing(t)
	var forwarded string
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		forwarded = r.Header.Get("Traceparent")
		w.WriteHeader(http.StatusBadGateway)
	}, func(c *testConfig) { c.Tracer, c.TrustsTrace = tracer, filter.TrustedTracers })
	const said = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	do(s, "GET", pathPods+"/a", "Traceparent", said, "Audit-Id", "mine")
	span, attributes := collected()
	if span.GetName() != "GET /api/v1/namespaces/{:namespace}/pods/{:name}" || span.GetStatus().GetMessage() != "Bad Gateway" {
		t.Errorf("got %v", span)
	}
	if len(span.GetLinks()) != 1 || strings.Contains(forwarded, said[3:35]) || !strings.HasSuffix(forwarded, "-01") {
		t.Errorf("the trace of an untrusted client is continued: %q, %v", forwarded, span)
	}
	if attributes["audit-id"] != "mine" || attributes["http.response.status_code"] != int64(502) || attributes["url.path"] != pathPods+"/a" {
		t.Errorf("got %v", attributes)
	}
}

// Administrators and monitoring may request sampling.
func TestTrustedTracers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		user *resource.User
		want bool
	}{
		{nil, false},
		{&resource.User{Name: "jane", Groups: []string{resource.GroupAuthenticated}}, false},
		{&resource.User{Name: "admin", Groups: []string{resource.GroupMasters}}, true},
		{&resource.User{Name: "prometheus", Groups: []string{"system:monitoring"}}, true},
	} {
		if got := filter.TrustedTracers(tc.user); got != tc.want {
			t.Errorf("%v: got %v", tc.user, got)
		}
	}
}
