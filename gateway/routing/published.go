package routing

import (
	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice"
	"portico/discovery"
	"portico/gateway/proxy"
)

// Table returns the routes as they are now; nil: there are none yet. It is replaced,
// never changed.
func (s *Sync) Table() *proxy.Table { return s.table.Load() }

// Discovery returns what the gateway says that it serves, all servers included.
func (s *Sync) Discovery() *discovery.Current { return &s.documents }

// OpenAPI returns who has which OpenAPI document; nil: nothing is known yet.
func (s *Sync) OpenAPI() *OpenAPI { return s.openAPI.Load() }

// Conditions returns the condition Available of every APIService, as far as this
// gateway sees; nil: nothing is known yet. It is not to be changed.
func (s *Sync) Conditions() map[string]apiservice.Condition {
	if known := s.conditions.Load(); known != nil {
		return *known
	}
	return nil
}

// Standings returns how each Backend stands; nil: nothing is known yet.
func (s *Sync) Standings() *Standings { return s.standings.Load() }

// Metrics are the metrics of servers, their checks and the requests to them.
func (s *Sync) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.traffic, s.checks, proxy.NewUpstreamMetrics(s.upstreams)}
}
