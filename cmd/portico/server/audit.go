package server

import (
	"github.com/spf13/pflag"

	"portico/resource/audit"
)

const auditExample = `

  # with an audit log of who did what
  portico gateway --audit-policy-file=policy.yaml --audit-log-path=/var/log/portico/audit.log

    # policy.yaml: changes with what was sent, everything else as one line, reads of the gateway's state not at all
    apiVersion: audit.k8s.io/v1
    kind: Policy
    omitStages: [RequestReceived]
    rules:
    - {level: None, nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/metrics"]}
    - {level: Metadata, resources: [{group: "", resources: [secrets, configmaps, serviceaccounts/token]}, {group: authentication.k8s.io}]}
    - {level: Request, verbs: [create, update, patch, delete, deletecollection]}
    - {level: Metadata}

  # to a webhook as well, named by a kubeconfig
  portico gateway --audit-policy-file=policy.yaml --audit-webhook-config-file=webhook.kubeconfig`

const AuditPrefix = "audit-"

// AddAudit adds the flags of audit, which are those of kube-apiserver.
func AddAudit(fs *pflag.FlagSet, to *audit.Options) {
	*to = audit.DefaultOptions()
	fs.StringVar(&to.PolicyFile, "audit-policy-file", "", "`file` with the audit Policy (audit.k8s.io/v1), as for kube-apiserver (default: nothing is audited)")
	log := &to.Log
	fs.StringVar(&log.Path, "audit-log-path", "", "`file` to write a line per audit event to; - is standard output (default: none)")
	fs.StringVar(&log.Format, "audit-log-format", log.Format, "`form` of the lines: json or legacy")
	fs.IntVar(&log.MaxSize, "audit-log-maxsize", log.MaxSize, "size in `megabytes` at which the audit log is rotated; 0 means never")
	fs.IntVar(&log.MaxBackups, "audit-log-maxbackup", log.MaxBackups, "`number` of rotated audit logs to keep; 0 means all")
	fs.IntVar(&log.MaxAge, "audit-log-maxage", log.MaxAge, "`days` to keep rotated audit logs; 0 means forever")
	fs.BoolVar(&log.Compress, "audit-log-compress", log.Compress, "compress rotated audit logs with gzip")
	addDelivery(fs, "log", &log.Delivery)
	hook := &to.Webhook
	fs.StringVar(&hook.ConfigFile, "audit-webhook-config-file", "", "kubeconfig `file` of the webhook to send audit events to (default: none)")
	fs.DurationVar(&hook.InitialBackoff, "audit-webhook-initial-backoff", hook.InitialBackoff, "`time` before a failed call of the audit webhook is repeated")
	fs.DurationVar(&hook.InitialBackoff, "audit-webhook-batch-initial-backoff", hook.InitialBackoff, "the old name of --audit-webhook-initial-backoff")
	addDelivery(fs, "webhook", &hook.Delivery)
	fs.StringVar(&log.Version, "audit-log-version", log.Version, "`version` of the events in the audit log")
	fs.StringVar(&hook.Version, "audit-webhook-version", hook.Version, "`version` of the events for the audit webhook")
	for _, name := range []string{"audit-webhook-batch-initial-backoff", "audit-log-version", "audit-webhook-version"} {
		fs.Lookup(name).Hidden = true // there is nothing to choose
	}
}

// addDelivery adds the flags of how events get to one of the sinks.
func addDelivery(fs *pflag.FlagSet, sink string, d *audit.Delivery) {
	prefix, batch := AuditPrefix+sink+"-", &d.Batch
	fs.StringVar(&d.Mode, prefix+"mode", d.Mode, "`mode` of sending events: batch (requests never wait), blocking (requests wait), or blocking-strict (requests are refused if their arrival cannot be recorded)")
	fs.IntVar(&batch.BufferSize, prefix+"batch-buffer-size", batch.BufferSize, "maximum `number` of events that wait; more are dropped and counted. Mode batch only")
	fs.IntVar(&batch.MaxSize, prefix+"batch-max-size", batch.MaxSize, "maximum `number` of events in a batch. Mode batch only")
	fs.DurationVar(&batch.MaxWait, prefix+"batch-max-wait", batch.MaxWait, "maximum `time` that an event waits for its batch to be full. Mode batch only")
	fs.BoolVar(&batch.Throttle, prefix+"batch-throttle-enable", batch.Throttle, "limit the rate of batches. Mode batch only")
	fs.Float32Var(&batch.QPS, prefix+"batch-throttle-qps", batch.QPS, "`batches` a second. Mode batch only")
	fs.IntVar(&batch.Burst, prefix+"batch-throttle-burst", batch.Burst, "`number` of batches sent at once after a quiet time. Mode batch only")
	fs.BoolVar(&d.Truncate, prefix+"truncate-enabled", d.Truncate, "leave the objects out of events that are too large")
	fs.Int64Var(&d.MaxEventBytes, prefix+"truncate-max-event-size", d.MaxEventBytes, "maximum size of an event in `bytes`")
	fs.Int64Var(&d.MaxBatchBytes, prefix+"truncate-max-batch-size", d.MaxBatchBytes, "maximum size of a batch in `bytes`")
}
