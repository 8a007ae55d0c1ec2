package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Headers of a trace, in canonical form.
const (
	headerParent = "Traceparent"
	headerState  = "Tracestate"
)

// maxAttribute bounds the values of attributes, in bytes.
const maxAttribute = 1024

// Span is a part of a trace. Methods of a nil Span do nothing, so callers need not know
// whether the request is sampled. Only the request's goroutine uses it.
type Span struct{ span trace.Span }

// Request describes an incoming request.
type Request struct {
	// Header is the request's header. Begin changes it to refer to the span, for a proxy to
	// send on.
	Header http.Header
	// Start is when the request arrived.
	Start time.Time
	// Trusted: the client's sampling decision applies.
	Trusted bool
}

// Begin begins the server span of a request and returns a context with it; ctx and nil if
// the request is not sampled. A nil Tracer leaves the header unchanged.
func (t *Tracer) Begin(ctx context.Context, r Request) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	var said trace.SpanContext
	if r.Header[headerParent] != nil {
		said = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header)))
	}
	link := false
	switch {
	case said.IsValid() && r.Trusted:
		if !said.IsSampled() {
			return ctx, nil
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, said)
	case t.rate == 0 || rand.Int32N(million) >= t.rate:
		delete(r.Header, headerState)
		inject(trace.ContextWithRemoteSpanContext(ctx, unsampled()), r.Header)
		return ctx, nil
	default:
		link = said.IsValid()
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.Start)}
	if link {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: said}))
	}
	// End names it: the route is unknown yet.
	ctx, span := t.tracer.Start(ctx, "request", opts...)
	delete(r.Header, headerState)
	inject(ctx, r.Header)
	return ctx, &Span{span}
}

// Sampled reports whether the request of the context is sampled.
func Sampled(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Client begins the client span of a request to another server and makes header refer to
// it, if the request of the context is sampled.
func Client(ctx context.Context, name string, header http.Header) *Span {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return nil
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	inject(ctx, header)
	return &Span{span}
}

// inject makes the header refer to the span of the context.
func inject(ctx context.Context, header http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
}

// unsampled returns the context of a trace that is not sampled.
func unsampled() trace.SpanContext {
	var c trace.SpanContextConfig
	binary.NativeEndian.PutUint64(c.TraceID[:], rand.Uint64()|1) // an id of zeros is invalid
	binary.NativeEndian.PutUint64(c.TraceID[8:], rand.Uint64())
	binary.NativeEndian.PutUint64(c.SpanID[:], rand.Uint64()|1)
	return trace.NewSpanContext(c)
}

// TraceID returns the id of the trace in hexadecimal; "" for a nil Span.
func (s *Span) TraceID() string {
	if s == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Name names the span.
func (s *Span) Name(name string) {
	if s != nil {
		s.span.SetName(printable(name))
	}
}

// Set adds an attribute unless the value is empty.
func (s *Span) Set(key, value string) {
	if s != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, printable(value)))
	}
}

// SetInt adds a numeric attribute.
func (s *Span) SetInt(key string, value int) {
	if s != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// printable cuts long values and replaces invalid UTF-8, for which OTLP would reject the
// whole batch.
func printable(s string) string {
	if len(s) > maxAttribute {
		s = s[:maxAttribute]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// End ends the span. failed is the error of the request; "" for none.
func (s *Span) End(failed string) {
	if s == nil {
		return
	}
	if failed != "" {
		s.span.SetStatus(codes.Error, printable(failed))
	}
	s.span.End()
}

// Stored records a span of a call to etcd that began at start and ends now with err, if
// the request of the context is sampled. operation and the resource name it; "" is none.
func Stored(ctx context.Context, operation, group, resource string, start time.Time, err error) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return
	}
	name, collection := operation, resource
	if group != "" {
		collection += "." + group
	}
	if collection != "" {
		name += " " + collection
	}
	_, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(start))
	span.SetAttributes(attribute.String("db.system.name", "etcd"), attribute.String("db.operation.name", operation))
	if collection != "" {
		span.SetAttributes(attribute.String("db.collection.name", collection))
	}
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	(&Span{span}).End(failed)
}
