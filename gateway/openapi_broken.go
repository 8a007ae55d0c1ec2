package gateway

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice"
	"portico/discovery/openapi"
	"portico/discovery/openapi/swagger"
)

// brokenDocuments returns the documents of a server that are known to be broken:
// by its index, by what was fetched of them because somebody asked for it, and by
// what they add to OpenAPI v2. remote and whole may be nil: nothing is known.
func brokenDocuments(srv *server, remote *openapi.Remote, whole *swagger.Whole) []openapi.Broken {
	out := srv.source.Broken()
	if remote != nil {
		out = append(out, remote.Broken(srv.openAPIOwner(), srv.source.OpenAPI())...)
	}
	if whole != nil {
		out = append(out, brokenV2(srv, whole.Broken())...)
	}
	return out
}

// brokenOpenAPI returns the broken documents of all servers that somebody's
// APIService leads to.
func (g *Gateway) brokenOpenAPI() map[*server][]openapi.Broken {
	index := g.sync.openAPI.Load()
	if index == nil {
		return nil
	}
	out, seen := map[*server][]openapi.Broken{}, map[*server]bool{}
	for _, p := range index.parts {
		if p.server == nil || seen[p.server] {
			continue
		}
		seen[p.server] = true
		if all := brokenDocuments(p.server, g.openAPIRemote, g.openAPIV2); len(all) > 0 {
			out[p.server] = all
		}
	}
	return out
}

// keyV2 marks the key of what a document adds to OpenAPI v2.
const keyV2 = " (v2)"

// brokenV2 returns what a server adds to OpenAPI v2 that cannot be used; v2 are
// the APIServices of which that is so.
func brokenV2(srv *server, v2 map[string]string) (out []openapi.Broken) {
	if len(v2) == 0 {
		return nil
	}
	gvs, _ := srv.source.GroupVersions()
	for i := range gvs {
		if message := v2[apiservice.Name(gvs[i].Group, gvs[i].Version)]; message != "" {
			out = append(out, openapi.Broken{Key: openapi.Key(gvs[i].Group, gvs[i].Version) + keyV2, Message: message})
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
			key := strings.TrimSuffix(b.Key, keyV2)
			l := labels{srv.name, strings.TrimPrefix(strings.TrimPrefix(key, "apis/"), "api/")}
			if told[l] {
				continue // an old server and the new one, for a moment
			}
			told[l] = true
			to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, l.backend, l.groupVersion)
		}
	}
}
