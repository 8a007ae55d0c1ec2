package gateway

import (
	"slices"

	"portico/resource/admission"
	"portico/resource/serve"
	"portico/resource/tracing"
)

// Check returns what New refuses in the configuration and in the files that it names, an element per part, which
// is nil if the part is accepted. It writes no file, connects nothing and listens nowhere.
func (cfg Config) Check() []error {
	cfg.complete()
	_, bounds := cfg.Connections.Limits()
	return slices.Concat([]error{bounds, cfg.Encryption.Check(), (&Gateway{cfg: cfg}).readBackends()}, cfg.Authentication.Check(), []error{
		cfg.Authorization.Check(), admission.CheckConfiguration(cfg.AdmissionConfigFile), cfg.Audit.Check(), tracing.Check(cfg.TracingConfigFile),
		cfg.Etcd.Check(), serve.CheckAddresses(cfg.Listen, cfg.ProbeListen),
	})
}
