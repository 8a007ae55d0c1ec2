package gateway

import (
	"portico/gateway/proxy"
	"portico/resource/accesslog"
	"portico/resource/audit"
	"portico/resource/tracing"
)

// assembleObservation makes what tells of requests and servers.
func (g *Gateway) assembleObservation() (err error) {
	registry := g.metrics.Registry()
	registry.MustRegister(g.sync.Metrics()...)
	if g.cfg.AccessLog != "" {
		g.accessLog, err = accesslog.Open(accesslog.Config{Path: g.cfg.AccessLog, Registry: registry, Logger: g.log})
		if err != nil {
			return err
		}
	}
	if g.audit, err = audit.Open(g.cfg.Audit, g.log); err != nil {
		return err
	}
	g.tracer, err = tracing.Open(g.cfg.TracingConfigFile, tracing.Options{
		Service: "portico-gateway", Instance: g.cfg.InstanceID, Registry: registry, Logger: g.log,
	})
	if err != nil {
		return err
	}
	g.proxy = proxy.New(proxy.Config{Table: g.sync.Table, Authorizer: g.access, Traced: g.tracer != nil, Logged: g.accessLog != nil})
	return nil
}
