package process

import (
	"portico/resource/admission"
	"portico/resource/authn"
	"portico/resource/serve"
	"portico/resource/tracing"
)

// Check returns what a server refuses in the configuration and in the files that it names, an element per part, which
// is nil if the part is accepted. It writes no file, connects nothing and listens nowhere.
func (cfg *Config) Check() []error {
	_, bounds := cfg.Connections.Limits()
	_, proxies := authn.FrontProxyOnly(cfg.RequestHeaderCAFile, cfg.RequestHeaderAllowedNames)
	_, gateway := cfg.GatewayTransport()
	return []error{
		cfg.Encryption.Check(), gateway, admission.CheckConfiguration(cfg.AdmissionConfigFile), proxies, bounds,
		cfg.Audit.Check(), tracing.Check(cfg.TracingConfigFile), cfg.Etcd.Check(), serve.CheckAddresses(cfg.Listen, cfg.ProbeListen),
	}
}
