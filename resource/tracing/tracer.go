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

// scope is the instrumentation scope of the spans.
const scope = "portico"

// flushTimeout bounds how long Run sends spans after its context has ended.
const flushTimeout = 2 * time.Second

// Options of a Tracer that the file does not have.
type Options struct {
	// Service and Instance name the process in traces.
	Service, Instance string
	// Registry gets the numbers of spans that were sent and lost; nil: none does.
	Registry prometheus.Registerer
	// Logger logs that the collector is unreachable. Default slog.Default().
	Logger *slog.Logger
}

// Tracer begins spans and sends them to a collector in the background; if that is too
// slow, spans are lost. Safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	rate     int32
}

// Open returns the Tracer of a TracingConfiguration; nil without one.
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

// Check returns what is wrong with the file of Open.
func Check(file string) error {
	if file == "" {
		return nil
	}
	_, err := Load(file)
	return err
}

// New returns a Tracer. It connects in the background.
func New(cfg Config, o Options) (*Tracer, error) {
	opts := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()}
	if cfg.Endpoint != "" {
		opts = append(opts, otlptracegrpc.WithEndpoint(cfg.Endpoint))
	}
	// The context is unused: New does not wait for the connection.
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
		// Begin has made the sampling decision.
		sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithSpanProcessor(processor),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service), attribute.String("service.instance.id", o.Instance),
		)),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer(scope), rate: cfg.SamplesPerMillion}
}

// Run waits for ctx to end and sends the remaining spans, within flushTimeout. A nil
// Tracer only waits.
func (t *Tracer) Run(ctx context.Context) error {
	<-ctx.Done()
	if t == nil {
		return ctx.Err()
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	// An unreachable collector was logged.
	_ = t.provider.Shutdown(flush)
	return ctx.Err()
}

// watched is an exporter that counts failures and logs the first one until a success.
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

// ExportSpans sends spans. It returns no error, because its caller would log every
// failure.
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
