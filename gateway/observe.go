package gateway

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/gateway/upstream"
	"portico/resource/accesslog"
	"portico/resource/audit"
	"portico/resource/tracing"
)

// assembleObservation makes what tells of requests and servers.
func (g *Gateway) assembleObservation() (err error) {
	g.authorizer = g.access
	registry := g.metrics.Registry()
	registry.MustRegister(g.sync.traffic, g.sync.checks, newUpstreamMetrics(g.sync.upstreams))
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
	return err
}

// shownAs is the name of a server to people: that of its Backend, or
// apiservice/NAME if it is the Service of an APIService. No Backend's name has a
// slash in it.
func (srv *server) shownAs() string {
	if name, ok := strings.CutPrefix(srv.target, documentsOfBackends); ok {
		return name
	}
	return srv.target
}

// upstreams are the ways to all servers, by the names they are shown under.
func (s *syncer) upstreams() map[string]*upstream.Upstream {
	out := map[string]*upstream.Upstream{}
	if live := s.live.Load(); live != nil {
		for _, srv := range *live {
			out[srv.shownAs()] = srv.up.Upstream
		}
	}
	return out
}

// watchTraffic has what passes by the routes counted, and forgets what passed by
// others. It is called before anybody sees them.
func (s *syncer) watchTraffic(routes map[schema.GroupVersion]*route) {
	if s.traffic == nil {
		return
	}
	upstreams := s.upstreams()
	names := make(map[*upstream.Upstream]string, len(upstreams))
	for name, up := range upstreams {
		names[up] = name
	}
	live := make(map[routeName]bool, len(routes))
	for _, rt := range routes {
		if rt.upstream == nil {
			continue
		}
		rt.backend = names[rt.upstream.Upstream]
		name := routeName{rt.name, rt.backend}
		rt.traffic, live[name] = s.traffic.route(name), true
	}
	s.traffic.keep(func(name routeName) bool { return live[name] }, func(name routeName) []string {
		up := upstreams[name.backend]
		if up == nil {
			return nil
		}
		var urls []string
		for _, e := range up.Endpoints() {
			urls = append(urls, e.URL)
		}
		return urls
	})
}
