package gateway

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"portico/discovery/openapi"
)

// brokenOpenAPI returns the documents of servers behind the gateway that are
// known to be broken: by their index, by what was fetched of them because
// somebody asked for it, and by what they add to OpenAPI v2. It costs as much as
// there are group/versions.
func (g *Gateway) brokenOpenAPI() map[*server][]openapi.Broken {
	index := g.sync.openAPI.Load()
	if index == nil {
		return nil
	}
	out := map[*server][]openapi.Broken{}
	seen := map[*server]bool{}
	v2 := g.openAPIV2.Broken()
	for _, p := range index.parts {
		srv := p.server
		if srv == nil {
			continue
		}
		if !seen[srv] {
			seen[srv] = true
			out[srv] = append(out[srv], srv.source.Broken()...)
		}
		var found []openapi.Broken
		if index.servers[p.key] == srv {
			found = g.openAPIRemote.Broken(srv.openAPIOwner(), map[string]string{p.key: index.urls[p.key]})
		}
		if message := v2[p.name]; message != "" && len(found) == 0 {
			found = []openapi.Broken{{Key: p.key, Message: "OpenAPI v2: " + message}}
		}
		if len(found) > 0 {
			out[srv] = append(out[srv], found...)
		}
	}
	for srv, all := range out {
		if len(all) == 0 {
			delete(out, srv)
		}
	}
	return out
}

// brokenMetric tells of the same.
type brokenMetric struct {
	gateway *Gateway
	desc    *prometheus.Desc
}

func newBrokenMetric(g *Gateway) *brokenMetric {
	return &brokenMetric{g, prometheus.NewDesc("portico_gateway_openapi_broken",
		"OpenAPI documents of servers that cannot be used (1), by backend or APIService and group/version; that of the index has none.",
		[]string{"backend", "group_version"}, nil)}
}

func (m *brokenMetric) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

func (m *brokenMetric) Collect(to chan<- prometheus.Metric) {
	type labels struct{ backend, groupVersion string }
	told := map[labels]bool{}
	for srv, all := range m.gateway.brokenOpenAPI() {
		for _, b := range all {
			l := labels{srv.name, strings.TrimPrefix(strings.TrimPrefix(b.Key, "apis/"), "api/")}
			if told[l] {
				continue // an old server and the new one, for a moment
			}
			told[l] = true
			to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, l.backend, l.groupVersion)
		}
	}
}
