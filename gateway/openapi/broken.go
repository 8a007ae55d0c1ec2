package openapi

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice"
	"portico/discovery/openapi"
	"portico/gateway/routing"
)

// BrokenOf returns the broken documents of a server: its index, those that were fetched, and those
// that cannot be converted to OpenAPI v2.
func (d *Documents) BrokenOf(srv *routing.Server) []openapi.Broken {
	out := srv.Source.Broken()
	out = append(out, d.remote.Broken(srv.OpenAPIOwner(), srv.Source.OpenAPI())...)
	return append(out, brokenV2(srv, d.v2.brokenAPIServices())...)
}

// broken returns the broken documents of all servers with an APIService.
func (d *Documents) broken() map[*routing.Server][]openapi.Broken {
	index := d.cfg.Index()
	if index == nil {
		return nil
	}
	out := map[*routing.Server][]openapi.Broken{}
	for _, srv := range index.Servers() {
		if all := d.BrokenOf(srv); len(all) > 0 {
			out[srv] = all
		}
	}
	return out
}

// keyV2 is the suffix of the keys of documents that cannot be converted to OpenAPI v2.
const keyV2 = " (v2)"

// brokenV2 returns the documents of a server that cannot be converted; v2 has the reasons by
// APIService.
func brokenV2(srv *routing.Server, v2 map[string]string) (out []openapi.Broken) {
	if len(v2) == 0 {
		return nil
	}
	gvs, _ := srv.Source.GroupVersions()
	for i := range gvs {
		if message := v2[apiservice.Name(gvs[i].Group, gvs[i].Version)]; message != "" {
			out = append(out, openapi.Broken{Key: openapi.Key(gvs[i].Group, gvs[i].Version) + keyV2, Message: message})
		}
	}
	return out
}

// brokenMetric exports the broken documents.
type brokenMetric struct {
	documents *Documents
	desc      *prometheus.Desc
}

func newBrokenMetric(d *Documents) *brokenMetric {
	return &brokenMetric{d, prometheus.NewDesc("portico_gateway_openapi_broken",
		"Invalid OpenAPI documents of servers (1), by backend or APIService and group/version; the index has none.",
		[]string{"backend", "group_version"}, nil)}
}

func (m *brokenMetric) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

func (m *brokenMetric) Collect(to chan<- prometheus.Metric) {
	type labels struct{ backend, groupVersion string }
	seen := map[labels]bool{}
	for srv, all := range m.documents.broken() {
		for _, b := range all {
			key := strings.TrimSuffix(b.Key, keyV2)
			l := labels{srv.Name, strings.TrimPrefix(strings.TrimPrefix(key, "apis/"), "api/")}
			if seen[l] {
				continue // of a replaced server, for a moment
			}
			seen[l] = true
			to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, l.backend, l.groupVersion)
		}
	}
}
