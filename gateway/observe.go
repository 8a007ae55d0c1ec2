package gateway

import (
	"portico/resource/accesslog"
	"portico/resource/tracing"
)

// assembleObservation makes what tells of requests besides their metrics.
func (g *Gateway) assembleObservation() (err error) {
	if g.cfg.AccessLog != "" {
		g.accessLog, err = accesslog.Open(accesslog.Config{Path: g.cfg.AccessLog, Registry: g.metrics.Registry(), Logger: g.log})
		if err != nil {
			return err
		}
	}
	g.tracer, err = tracing.Open(g.cfg.TracingConfigFile, tracing.Options{
		Service: "portico-gateway", Instance: g.cfg.InstanceID, Registry: g.metrics.Registry(), Logger: g.log,
	})
	return err
}
