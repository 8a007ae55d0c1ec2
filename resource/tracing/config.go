package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
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

// configFile is the TracingConfiguration of kube-apiserver.
type configFile struct {
	APIVersion             string  `json:"apiVersion"`
	Kind                   string  `json:"kind"`
	Endpoint               *string `json:"endpoint"`
	SamplingRatePerMillion *int32  `json:"samplingRatePerMillion"`
}

// Load reads a TracingConfiguration of apiserver.config.k8s.io (v1, v1beta1 or
// v1alpha1) in YAML or JSON.
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
	var file configFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, err
	}
	group, version, _ := strings.Cut(file.APIVersion, "/")
	switch {
	case file.Kind != "TracingConfiguration":
		return nil, fmt.Errorf("kind: %q must be TracingConfiguration", file.Kind)
	case group != "apiserver.config.k8s.io" || version != "v1" && version != "v1beta1" && version != "v1alpha1":
		return nil, fmt.Errorf("apiVersion: %q must be apiserver.config.k8s.io/v1, v1beta1 or v1alpha1", file.APIVersion)
	}
	cfg := new(Config)
	if file.Endpoint != nil {
		cfg.Endpoint = *file.Endpoint
	}
	if file.SamplingRatePerMillion != nil {
		cfg.SamplesPerMillion = *file.SamplingRatePerMillion
	}
	return cfg, cfg.validate()
}

func (c *Config) validate() error {
	if c.SamplesPerMillion < 0 || c.SamplesPerMillion > million {
		return fmt.Errorf("samplingRatePerMillion: %d must be between 0 and %d", c.SamplesPerMillion, million)
	}
	if !strings.Contains(c.Endpoint, "//") {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("endpoint: %w", err)
	case u.Scheme == "dns" || u.Scheme == "unix" || u.Scheme == "unix-abstract":
		return nil
	}
	return errors.New("endpoint: must be host:port, or a URL with the scheme dns, unix or unix-abstract; OTLP is spoken over gRPC")
}
