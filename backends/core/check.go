package core

import (
	"fmt"
	"slices"
	"strings"

	"portico/backends/core/controllers"
	"portico/backends/core/kinds"
	"portico/backends/core/kubelet"
	"portico/backends/core/services"
	"portico/resource/authn"
	"portico/resource/rest"
)

// Check returns what New refuses; see process.Config.Check.
func (cfg Config) Check() []error {
	_, err := services.Hosts(strings.Join(cfg.ServiceClusterIPRanges, ","))
	_, controller := controllers.Select(cfg.Controllers)
	_, kubelets := kubelet.New(cfg.Kubelet)
	return append([]error{
		cfg.Admission.Check(), cfg.ControllerOptions.Signing.Check(), about("--service-cluster-ip-range", err), about("--controllers", controller),
		about("--runtime-config", cfg.checkServed()), kubelets, cfg.checkSigner(),
	}, cfg.Config.Check()...)
}

// checkServed refuses switches of unknown APIs, and a server that neither has namespaces nor reads them through a gateway.
func (cfg *Config) checkServed() error {
	if len(cfg.RuntimeConfig) == 0 {
		return nil
	}
	served, err := servedKinds(kinds.All(kinds.Config{}), cfg.RuntimeConfig)
	if err == nil && !slices.ContainsFunc(served, func(k *rest.Kind) bool { return k.Group == "" }) && cfg.Gateway.URL == "" {
		err = errNoNamespaces
	}
	return err
}

// checkSigner refuses a key that signs no tokens.
func (cfg *Config) checkSigner() error {
	if cfg.ServiceAccountSigningKeyFile == "" || len(cfg.ServiceAccountIssuers) == 0 {
		return nil
	}
	if _, err := authn.NewSigner(cfg.ServiceAccountSigningKeyFile, cfg.ServiceAccountIssuers[0]); err != nil {
		return fmt.Errorf("load service account signing key: %w", err)
	}
	_, err := cfg.maxTokenExpiration()
	return err
}

// about names the flag of an error, which may be nil.
func about(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}
