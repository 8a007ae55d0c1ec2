package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Shared gathers the metrics of upstream's packages with names that begin with one of the
// prefixes. Upstream's packages register in one registry. Most metrics there do not apply to
// this process or duplicate its own. Gathering it takes a millisecond, so call Shared once
// for all prefixes.
func Shared(prefixes ...string) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := legacyregistry.DefaultGatherer.Gather()
		matching := slices.DeleteFunc(all, func(family *dto.MetricFamily) bool {
			return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(family.GetName(), p) })
		})
		if len(matching) > 0 {
			err = nil // it concerns the others
		}
		return matching, err
	})
}
