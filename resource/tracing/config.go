package tracing

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
	"k8s.io/utils/ptr"
)

// million is the denominator of SamplesPerMillion.
const million = 1_000_000

// Config configures sampling and the collector.
type Config struct {
	// Endpoint is the collector as gRPC names it: host:port, dns:///host:port or
	// unix:///path. Default localhost:4317.
	Endpoint string
	// SamplesPerMillion is the rate at which requests without a sampling decision are
	// sampled. Default 0.
	SamplesPerMillion int32
}

// Load reads a TracingConfiguration of apiserver.config.k8s.io (v1, v1beta1 or
// v1alpha1) in YAML or JSON. Unknown fields are errors.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tracing configuration: %w", err)
	}
	cfg, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("read tracing configuration %s: %w", path, err)
	}
	return cfg, nil
}

func parse(data []byte) (*Config, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	file, ok := object.(*apiserver.TracingConfiguration)
	if !ok {
		return nil, fmt.Errorf("kind: %T must be TracingConfiguration", object)
	}
	if errs := tracingv1.ValidateTracingConfiguration(&file.TracingConfiguration, nil, nil); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return &Config{Endpoint: ptr.Deref(file.Endpoint, ""), SamplesPerMillion: ptr.Deref(file.SamplingRatePerMillion, 0)}, nil
}
