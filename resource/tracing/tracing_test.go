package tracing

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

const (
	sampledParent   = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	unsampledParent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"
)

func TestLoad(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Config
		err  string
	}{
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration", Config{}, ""},
		{"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: 127.0.0.1:4317\nsamplingRatePerMillion: 100", Config{"127.0.0.1:4317", 100}, ""},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: unix:///run/otel.sock", Config{"unix:///run/otel.sock", 0}, ""},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: https://a:1", Config{}, "endpoint"},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: -1", Config{}, "samplingRatePerMillion: Invalid value: -1"},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 1000001", Config{}, "samplingRatePerMillion"},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nrate: 1", Config{}, "rate"},
		{"apiVersion: apiserver.config.k8s.io/v2\nkind: TracingConfiguration", Config{}, "apiserver.config.k8s.io/v2"},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration", Config{}, "TracingConfiguration"},
		{"apiVersion: apiserver.config.k8s.io/v1\nkind: Tracing", Config{}, "kind"},
		{"][", Config{}, "yaml"},
	} {
		path := filepath.Join(t.TempDir(), "tracing.yaml")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(path)
		switch {
		case tc.err == "" && (err != nil || *got != tc.want):
			t.Errorf("%q: got %v, %v", tc.text, got, err)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), path)):
			t.Errorf("%q: got %v, want %s", tc.text, err, tc.err)
		}
	}
	if _, err := Load("/nowhere"); err == nil {
		t.Error("a missing file is none")
	}
}

// recorded returns a tracer and the exporter of its spans.
func recorded(rate int32) (*Tracer, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	return newTracer(Config{SamplesPerMillion: rate}, Options{Service: "test"}, sdk.NewSimpleSpanProcessor(exporter)), exporter
}

// The first server decides about sampling, trusted clients included.
func TestBegin(t *testing.T) {
	for _, tc := range []struct {
		name, parent string
		rate         int32
		trusted      bool
		spans        int
		follows      bool // the trace is that of the parent
		links        int
	}{
		{"no decision, none sampled", "", 0, false, 0, false, 0},
		{"no decision, all sampled", "", million, false, 1, false, 0},
		{"untrusted client samples", sampledParent, 0, false, 0, false, 0},
		{"untrusted client samples, all sampled", sampledParent, million, false, 1, false, 1},
		{"untrusted client does not sample", unsampledParent, million, false, 1, false, 1},
		{"trusted client samples", sampledParent, 0, true, 1, true, 0},
		{"trusted client does not sample", unsampledParent, million, true, 0, true, 0},
		{"invalid header of a trusted client", "00-zz", million, true, 1, false, 0},
	} {
		tracer, exporter := recorded(tc.rate)
		header := http.Header{"Tracestate": {"a=b"}}
		if tc.parent != "" {
			header.Set("traceparent", tc.parent)
		}
		ctx, span := tracer.Begin(context.Background(), Request{Header: header, Start: time.Now(), Trusted: tc.trusted})
		inner := Client(ctx, "GET", http.Header{})
		if (inner != nil) != (tc.spans == 1) {
			t.Errorf("%s: client span: %v", tc.name, inner)
		}
		span.Name("GET /x")
		span.End("")
		spans := exporter.GetSpans()
		if len(spans) != tc.spans {
			t.Errorf("%s: %d spans", tc.name, len(spans))
			continue
		}
		sent := header.Get("traceparent")
		if len(sent) != 55 || strings.HasSuffix(sent, "-01") != (tc.spans == 1) {
			t.Errorf("%s: sent %q", tc.name, sent)
		}
		if follows := strings.HasPrefix(sent, sampledParent[:35]); follows != tc.follows {
			t.Errorf("%s: sent %q", tc.name, sent)
		}
		if tc.spans == 1 {
			got := spans[0]
			if len(got.Links) != tc.links || got.Parent.IsValid() != tc.follows || got.SpanKind != trace.SpanKindServer || got.Name != "GET /x" {
				t.Errorf("%s: got %+v", tc.name, got)
			}
			if span.TraceID() != sent[3:35] || got.SpanContext.SpanID().String() != sent[36:52] {
				t.Errorf("%s: the header %q refers to another span", tc.name, sent)
			}
		}
	}
}

// About SamplesPerMillion of the requests are sampled.
func TestRate(t *testing.T) {
	tracer, _ := recorded(million / 4)
	sampled := 0
	const n = 4000
	for range n {
		if _, span := tracer.Begin(context.Background(), Request{Header: http.Header{}}); span != nil {
			sampled++
		}
	}
	if sampled < n/5 || sampled > n*3/10 {
		t.Errorf("%d of %d", sampled, n)
	}
}

// Methods of a nil Tracer and a nil Span do nothing.
func TestNil(t *testing.T) {
	var tracer *Tracer
	header := http.Header{"Traceparent": {sampledParent}}
	ctx, span := tracer.Begin(context.Background(), Request{Header: header})
	if ctx != context.Background() || span != nil || header.Get("traceparent") != sampledParent {
		t.Errorf("got %v, %v", span, header)
	}
	span.Name("x")
	span.Set("a", "b")
	span.SetInt("a", 1)
	span.End("failed")
	if span.TraceID() != "" {
		t.Error("a nil span has a trace")
	}
}

// receiver is a collector.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	got chan *collector.ExportTraceServiceRequest
}

func (r *receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.got <- request
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans are sent to the collector when Run ends.
func TestCollector(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{got: make(chan *collector.ExportTraceServiceRequest, 10)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	registry := prometheus.NewRegistry()
	tracer, err := New(Config{Endpoint: listener.Addr().String(), SamplesPerMillion: million}, Options{Service: "gateway", Instance: "g1", Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracer.Begin(context.Background(), Request{Header: http.Header{}, Start: time.Now()})
	span.Name("GET /x")
	span.Set("bytes", "\xff")
	span.Set("long", strings.Repeat("x", 1<<20))
	span.End("it failed")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = tracer.Run(ctx) // sends the remaining spans
	request := <-r.got
	resource := request.ResourceSpans[0]
	got := resource.ScopeSpans[0].Spans[0]
	if got.Name != "GET /x" || got.Status.Message != "it failed" || len(got.Attributes[1].Value.GetStringValue()) != maxAttribute {
		t.Errorf("got %v", got)
	}
	if resource.Resource.Attributes[1].Value.GetStringValue() != "gateway" {
		t.Errorf("got %v", resource.Resource)
	}
	if n := count(t, registry, "sent"); n != 1 {
		t.Errorf("%v were sent", n)
	}
}

// Spans that cannot be sent are counted as failed.
func TestNoCollector(t *testing.T) {
	registry := prometheus.NewRegistry()
	failing := failingExporter{}
	w, err := watch(failing, Options{Registry: registry, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	tracer := newTracer(Config{SamplesPerMillion: million}, Options{}, sdk.NewBatchSpanProcessor(w))
	_, span := tracer.Begin(context.Background(), Request{Header: http.Header{}, Start: time.Now()})
	span.End("")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = tracer.Run(ctx)
	if n := count(t, registry, "failed"); n != 1 {
		t.Errorf("%v failed", n)
	}
}

type failingExporter struct{}

func (failingExporter) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	return io.ErrClosedPipe
}
func (failingExporter) Shutdown(context.Context) error { return nil }

// count returns the number of spans with this result.
func count(t *testing.T, registry *prometheus.Registry, result string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == result {
			return m.GetCounter().GetValue()
		}
	}
	return 0
}

// Calls to etcd are spans below that of the request.
func TestStored(t *testing.T) {
	tracer, exporter := recorded(million)
	ctx, span := tracer.Begin(context.Background(), Request{Header: http.Header{}})
	start := time.Now().Add(-time.Minute)
	Stored(ctx, "create", "apps", "deployments", start, io.ErrUnexpectedEOF)
	Stored(ctx, "getCurrentResourceVersion", "", "", start, nil)
	span.End("")
	spans := exporter.GetSpans()
	if len(spans) != 3 || spans[0].Name != "create deployments.apps" || spans[1].Name != "getCurrentResourceVersion" {
		t.Fatalf("got %v", spans)
	}
	for _, s := range spans[:2] {
		if s.Parent.SpanID() != spans[2].SpanContext.SpanID() || !s.StartTime.Equal(start) || s.SpanKind != trace.SpanKindClient {
			t.Errorf("got %v", s)
		}
	}
	if spans[0].Status.Description != io.ErrUnexpectedEOF.Error() || len(spans[0].Attributes) != 3 || len(spans[1].Attributes) != 2 {
		t.Errorf("got %v", spans[0])
	}
	Stored(context.Background(), "get", "", "pods", start, nil)
	if n := len(exporter.GetSpans()); n != 3 {
		t.Errorf("%d spans without a sampled request", n-3)
	}
}
