package audit

// metricPrefix begins the names of upstream's metrics of audit.
const metricPrefix = "apiserver_audit_"

// Metrics returns how the names begin of what upstream's audit counts, where there
// is any, in the registry that its parts share.
func (o *Options) Metrics() (beginnings []string) {
	if o.PolicyFile == "" {
		return nil
	}
	return []string{metricPrefix}
}
