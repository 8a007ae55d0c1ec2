package audit

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// metricPrefix begins the names of upstream's metrics of audit.
const metricPrefix = "apiserver_audit_"

// Metrics gathers what upstream's audit counts, where there is any. It counts in
// a registry of its own, together with much that is nobody's here.
func (o *Options) Metrics() []prometheus.Gatherer {
	if o.PolicyFile == "" {
		return nil
	}
	return []prometheus.Gatherer{prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := legacyregistry.DefaultGatherer.Gather()
		var own []*dto.MetricFamily
		for _, family := range all {
			if strings.HasPrefix(family.GetName(), metricPrefix) {
				own = append(own, family)
			}
		}
		if own != nil {
			err = nil // it is about the others
		}
		return own, err
	})}
}
