package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope names who made the spans.
const scope = "portico"

// flushTimeout bounds how long the end of the process waits for a collector.
const flushTimeout = 2 * time.Second

// Options of a Tracer that no file decides.
type Options struct {
	// Service and Instance name the process in traces.
	Service, Instance string
	// Registry shows how many spans were sent and lost; nil: nobody sees them.
	Registry prometheus.Registerer
	// Logger is told when a collector cannot be reached. Default slog.Default().
	Logger *slog.Logger
}

// Tracer begins spans and sends them to a collector, in the background; when
// that does not keep up, spans are lost. Safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	rate     int32
}

// Open returns the Tracer that a TracingConfiguration describes; nil without
// one.
func Open(file string, o Options) (*Tracer, error) {
	if file == "" {
		return nil, nil
	}
	cfg, err := Load(file)
	if err != nil {
		return nil, err
	}
	return New(*cfg, o)
}

// New returns a Tracer. It connects in the background: a collector may come and
// go.
func New(cfg Config, o Options) (*Tracer, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make tracer: %w", err)
	}
	opts := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()}
	if cfg.Endpoint != "" {
		opts = append(opts, otlptracegrpc.WithEndpoint(cfg.Endpoint))
	}
	// Without waiting for the connection it needs no context.
	exporter, err := otlptracegrpc.New(context.Background(), opts...)
	if err != nil {
		return nil, fmt.Errorf("make tracer: %w", err)
	}
	watched, err := watch(exporter, o)
	if err != nil {
		return nil, fmt.Errorf("make tracer: %w", err)
	}
	return newTracer(cfg, o, sdk.NewBatchSpanProcessor(watched)), nil
}

func newTracer(cfg Config, o Options, processor sdk.SpanProcessor) *Tracer {
	provider := sdk.NewTracerProvider(
		// Who gets here has been drawn.
		sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithSpanProcessor(processor),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service), attribute.String("service.instance.id", o.Instance),
		)),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer(scope), rate: cfg.SamplesPerMillion}
}

// Run waits for ctx to end and sends what has not been sent; not for long. A nil
// Tracer only waits.
func (t *Tracer) Run(ctx context.Context) error {
	<-ctx.Done()
	if t == nil {
		return ctx.Err()
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	// A collector that is away has been logged; nothing can be done about it now.
	_ = t.provider.Shutdown(flush)
	return ctx.Err()
}

// watched is an exporter whose failures are counted, and logged once until it
// works again; those of every batch would fill the log.
type watched struct {
	sdk.SpanExporter
	log          *slog.Logger
	failing      atomic.Bool
	sent, failed prometheus.Counter
}

func watch(exporter sdk.SpanExporter, o Options) (*watched, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portico_trace_spans_total",
		Help: "Spans of traces that were sent to the collector, or failed to be.",
	}, []string{"result"})
	if o.Registry != nil {
		if err := o.Registry.Register(spans); err != nil {
			return nil, err
		}
	}
	return &watched{
		SpanExporter: exporter, log: o.Logger, sent: spans.WithLabelValues("sent"), failed: spans.WithLabelValues("failed"),
	}, nil
}

// ExportSpans sends spans. It fails in silence, for what is above it would log
// every failure.
func (w *watched) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := w.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		w.failed.Add(float64(len(spans)))
		if !w.failing.Swap(true) && !errors.Is(err, context.Canceled) {
			w.log.Warn("sending traces failed", "err", err)
		}
		return nil
	}
	w.failing.Store(false)
	w.sent.Add(float64(len(spans)))
	return nil
}
