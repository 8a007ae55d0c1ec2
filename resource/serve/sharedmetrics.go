package serve

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// SharedMetrics gathers, of what upstream's parts count, the metrics whose names
// begin so. They count in one registry that all of them share, together with much
// that is nobody's here or that this process counts itself; gathering it takes a
// millisecond, so that it is done once for all who want something of it.
func SharedMetrics(beginnings ...string) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := legacyregistry.DefaultGatherer.Gather()
		own := slices.DeleteFunc(all, func(family *dto.MetricFamily) bool {
			return !slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(family.GetName(), b) })
		})
		if len(own) > 0 {
			err = nil // it is about the others
		}
		return own, err
	})
}
