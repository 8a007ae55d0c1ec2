package routing

import (
	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice"
	"portico/discovery"
	"portico/gateway/proxy"
)

// Table returns the routes as they are now; nil: there are none yet. It is replaced,
// never changed.
func (s *Controller) Table() *proxy.Table { return s.table.Load() }

// Discovery returns what the gateway says that it serves, all servers included.
func (s *Controller) Discovery() *discovery.Current { return &s.documents }

// OpenAPI returns who has which OpenAPI document; nil: nothing is known yet.
func (s *Controller) OpenAPI() *OpenAPI { return s.openAPI.Load() }

// Conditions returns the condition Available of every APIService, as far as this
// gateway sees; nil: nothing is known yet. It is not to be changed.
func (s *Controller) Conditions() map[string]apiservice.Condition {
	if known := s.conditions.Load(); known != nil {
		return *known
	}
	return nil
}

// WhyUnknown returns why nothing is known of what is registered as a group/version: how
// it stands with its server or, if that is well, what is wrong with its document; "": it
// was not asked for yet.
func (s *Controller) WhyUnknown(group, version string) string {
	rt := s.Table().Lookup(group, version)
	switch {
	case rt == nil || rt.Local:
		return ""
	case !rt.Condition.Available() && rt.Condition.Reason != Unchecked().Reason:
		return rt.Condition.Reason + ": " + rt.Condition.Message
	}
	for _, srv := range s.liveServers() {
		if srv.Up != rt.Upstream {
			continue
		}
		for _, u := range srv.Source.Unread() {
			if u.GroupVersion.Group == group && u.GroupVersion.Version == version {
				return StableText(u.Err.Error())
			}
		}
		if v := s.DiscoveryVerdict(srv); v.Known && !v.Healthy {
			return v.Err.Error()
		}
	}
	return ""
}

// BackendStates returns how each Backend stands; nil: nothing is known yet.
func (s *Controller) BackendStates() *BackendStates { return s.backendStates.Load() }

// Metrics are the metrics of servers, their checks and the requests to them.
func (s *Controller) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.traffic, s.checks, proxy.NewUpstreamMetrics(s.upstreams), newDroppedMetric(s)}
}
