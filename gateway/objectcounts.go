package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/gateway/flow"
	"portico/gateway/proxy"
)

const (
	// countInterval is the interval at which object counts are read, as in kube-apiserver.
	countInterval = time.Minute
	// firstCounts is the interval until every server has answered once.
	firstCounts = 2 * time.Second
	// maxMetrics bounds the metrics of one server, in bytes.
	maxMetrics = 64 << 20

	objectsMetric = "apiserver_resource_objects"
	sizeMetric    = "apiserver_resource_size_estimate_bytes"
)

// objectCounts are the numbers and sizes of the objects of each resource, from the metrics of the
// gateway and of the servers that it starts with. Those of a server that is away stay. Safe for
// concurrent use.
type objectCounts struct {
	table func() *proxy.Table
	own   prometheus.Gatherer
	known atomic.Pointer[map[string]flow.Stats] // by group resource; nil: nothing was read
}

// Of returns what is known of a resource, "deployments.apps".
func (c *objectCounts) Of(groupResource string) (stats flow.Stats, ok bool) {
	if known := c.known.Load(); known != nil {
		stats, ok = (*known)[groupResource]
	}
	return stats, ok
}

// run reads the counts until ctx ends.
func (c *objectCounts) run(ctx context.Context) error {
	last := map[string]map[string]flow.Stats{} // by server
	for {
		wait := countInterval
		if err := c.read(ctx, last); err != nil {
			wait = firstCounts
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// read reads the counts of all servers into last and publishes them. It returns an error until
// each server has answered once.
func (c *objectCounts) read(ctx context.Context, last map[string]map[string]flow.Stats) error {
	servers := c.servers()
	if len(servers) == 0 {
		return errors.New("no server has a route")
	}
	var errs []error
	for name, upstream := range servers {
		families, err := metricsOf(ctx, upstream)
		if err == nil {
			last[name] = countsOf(families)
		} else if last[name] == nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	known := map[string]flow.Stats{}
	for _, counts := range last {
		maps.Copy(known, counts)
	}
	families, err := c.own.Gather()
	errs = append(errs, err)
	maps.Copy(known, countsOf(families))
	c.known.Store(&known)
	return errors.Join(errs...)
}

// servers returns the servers that the gateway starts with and that have routes, by name.
func (c *objectCounts) servers() map[string]*proxy.Upstream {
	servers, table := map[string]*proxy.Upstream{}, c.table()
	if table == nil {
		return nil // the gateway starts
	}
	for _, rt := range table.Routes {
		if rt.Static && rt.Upstream != nil {
			servers[rt.Backend] = rt.Upstream
		}
	}
	return servers
}

// metricsOf reads the metrics of a server.
func metricsOf(ctx context.Context, upstream http.RoundTripper) ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, countInterval/2)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, loopbackURL+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	identifyGateway(req.Header)
	res, err := upstream.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	var wanted bytes.Buffer
	lines := bufio.NewScanner(io.LimitReader(res.Body, maxMetrics))
	for lines.Scan() {
		if line := lines.Bytes(); bytes.Contains(line, []byte(objectsMetric)) || bytes.Contains(line, []byte(sizeMetric)) {
			wanted.Write(line)
			wanted.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&wanted)
	return slices.Collect(maps.Values(families)), err
}

// countsOf returns the counts that are among metrics.
func countsOf(families []*dto.MetricFamily) map[string]flow.Stats {
	counts := map[string]flow.Stats{}
	for _, f := range families {
		if f.GetName() != objectsMetric && f.GetName() != sizeMetric {
			continue
		}
		for _, m := range f.Metric {
			var gr schema.GroupResource
			for _, l := range m.Label {
				switch l.GetName() {
				case "group":
					gr.Group = l.GetValue()
				case "resource":
					gr.Resource = l.GetValue()
				}
			}
			stats, value := counts[gr.String()], int64(m.GetGauge().GetValue())
			if value < 0 {
				continue // it is not known yet
			}
			if f.GetName() == objectsMetric {
				stats.Objects = value
			} else {
				stats.Bytes = value
			}
			counts[gr.String()] = stats
		}
	}
	return counts
}
