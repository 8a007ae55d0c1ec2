package gateway

import "portico/resource/accesslog"

// assembleObservation makes what tells of requests besides their metrics.
func (g *Gateway) assembleObservation() (err error) {
	if g.cfg.AccessLog == "" {
		return nil
	}
	g.accessLog, err = accesslog.Open(accesslog.Config{Path: g.cfg.AccessLog, Registry: g.metrics.Registry(), Logger: g.log})
	return err
}
