package audit

// metricPrefix begins the names of upstream's metrics of audit.
const metricPrefix = "apiserver_audit_"

// Metrics returns the prefixes of upstream's metrics of audit, in the registry of
// component-base; nil without a policy.
func (o *Options) Metrics() (beginnings []string) {
	if o.PolicyFile == "" {
		return nil
	}
	return []string{metricPrefix}
}
