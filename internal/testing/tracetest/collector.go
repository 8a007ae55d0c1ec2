// Package tracetest is a collector of traces (OTLP over gRPC) that keeps what processes send.
//
// Runs in: tests.
package tracetest

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
)

// Collector keeps all spans. Safe for concurrent use.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	server *grpc.Server
	// Config is a TracingConfiguration with which processes send their traces.
	Config string

	mu    sync.Mutex
	spans map[string][]*otlp.Span // by service
}

// Start starts a collector on a port of loopback. Stop it after use.
func Start() (*Collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{
		server: grpc.NewServer(), spans: map[string][]*otlp.Span{},
		Config: "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + listener.Addr().String() + "\n",
	}
	collector.RegisterTraceServiceServer(c.server, c)
	go func() { _ = c.server.Serve(listener) }()
	return c, nil
}

// Stop ends all connections.
func (c *Collector) Stop() { c.server.Stop() }

// Export keeps the spans of a request.
func (c *Collector) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range request.GetResourceSpans() {
		service := ""
		for _, a := range r.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range r.GetScopeSpans() {
			c.spans[service] = append(c.spans[service], scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Of returns the spans of a trace, named by its id in hexadecimal digits, that a service has sent.
func (c *Collector) Of(service, trace string) (out []*otlp.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.spans[service] {
		if hex.EncodeToString(span.GetTraceId()) == trace {
			out = append(out, span)
		}
	}
	return out
}

// Text returns all spans with all their attributes and events, by service.
func (c *Collector) Text() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for service, spans := range c.spans {
		for _, span := range spans {
			out[service] += fmt.Sprintln(prototext.Format(span))
		}
	}
	return out
}
