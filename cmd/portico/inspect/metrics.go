package inspect

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the answers of /metrics of processes, by name.
type Metrics map[string][]*dto.Metric

// Add adds the answer of one process.
func (m Metrics) Add(text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	for name, family := range families {
		m[name] = append(m[name], family.Metric...)
	}
	return nil
}

// Label returns a label of a series; "" without it.
func Label(s *dto.Metric, name string) string {
	for _, l := range s.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Value returns the value of a counter or gauge.
func Value(s *dto.Metric) float64 {
	switch {
	case s.Counter != nil:
		return s.Counter.GetValue()
	case s.Gauge != nil:
		return s.Gauge.GetValue()
	}
	return s.Untyped.GetValue()
}

// Sum adds the series of a metric by the values of a label, without those that are 0.
func (m Metrics) Sum(name, label string) map[string]float64 {
	sums := map[string]float64{}
	for _, s := range m[name] {
		if v := Value(s); v != 0 {
			sums[Label(s, label)] += v
		}
	}
	return sums
}

// histogram is the sum of histograms with the same buckets.
type histogram struct {
	count   uint64
	buckets map[float64]uint64 // cumulative, by upper bound
}

func (h *histogram) add(from *dto.Histogram) {
	if h.buckets == nil {
		h.buckets = map[float64]uint64{}
	}
	h.count += from.GetSampleCount()
	for _, b := range from.Bucket {
		h.buckets[b.GetUpperBound()] += b.GetCumulativeCount()
	}
}

// quantile returns the value below which a part of the observations is, as Prometheus estimates
// it; the greatest bound for one above all bounds.
func (h *histogram) quantile(part float64) float64 {
	bounds := make([]float64, 0, len(h.buckets))
	for b := range h.buckets {
		if !math.IsInf(b, 1) {
			bounds = append(bounds, b)
		}
	}
	slices.Sort(bounds)
	rank, low, below := part*float64(h.count), 0.0, 0.0
	for _, b := range bounds {
		n := float64(h.buckets[b])
		if n >= rank && n > below {
			return low + (b-low)*(rank-below)/(n-below)
		}
		low, below = b, n
	}
	return low
}

// Load is the requests for one group/version.
type Load struct {
	Name     string `json:"name"`
	Requests uint64 `json:"requests"`
	// P99 is the time that one request of a hundred takes, or more, in seconds.
	P99 float64 `json:"p99"`
}

// Loads returns the requests for all group/versions since the gateway started, by name of
// APIService, without watches.
func (m Metrics) Loads() (all []Load) {
	sums := map[string]*histogram{}
	add := func(name string, s *dto.Metric) {
		if sums[name] == nil {
			sums[name] = new(histogram)
		}
		sums[name].add(s.GetHistogram())
	}
	for _, s := range m["portico_upstream_request_duration_seconds"] {
		add(Label(s, "apiservice"), s)
	}
	for _, s := range m["apiserver_request_duration_seconds"] {
		// Those of the gateway's own kinds; those for servers are above.
		if group := Label(s, "group"); group != "" && Label(s, "component") == "apiserver" && Label(s, "verb") != "WATCH" {
			add(Label(s, "version")+"."+group, s)
		}
	}
	for name, h := range sums {
		if h.count > 0 {
			all = append(all, Load{name, h.count, h.quantile(0.99)})
		}
	}
	return all
}
