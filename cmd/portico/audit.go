package main

import (
	"strings"

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

const auditPrefix = "audit-"

// addAudit adds the flags of audit, which are those of kube-apiserver.
func addAudit(fs *pflag.FlagSet, to *audit.Options) {
	*to = audit.DefaultOptions()
	fs.StringVar(&to.PolicyFile, "audit-policy-file", "", "`file` with the audit Policy (audit.k8s.io/v1), as for kube-apiserver (default: nothing is audited)")
	log := &to.Log
	fs.StringVar(&log.Path, "audit-log-path", "", "`file` that gets a line for every audit event; - is the standard output (default: none)")
	fs.StringVar(&log.Format, "audit-log-format", log.Format, "`form` of the lines: json or legacy")
	fs.IntVar(&log.MaxSize, "audit-log-maxsize", log.MaxSize, "`megabytes` that the audit log may have before it is rotated; 0 never rotates it")
	fs.IntVar(&log.MaxBackups, "audit-log-maxbackup", log.MaxBackups, "how `many` rotated audit logs are kept; 0 keeps all")
	fs.IntVar(&log.MaxAge, "audit-log-maxage", log.MaxAge, "for how many `days` rotated audit logs are kept; 0 is for ever")
	fs.BoolVar(&log.Compress, "audit-log-compress", log.Compress, "compress rotated audit logs with gzip")
	addDelivery(fs, "log", &log.Delivery)
	hook := &to.Webhook
	fs.StringVar(&hook.ConfigFile, "audit-webhook-config-file", "", "kubeconfig `file` that names the webhook which gets audit events (default: none)")
	fs.DurationVar(&hook.InitialBackoff, "audit-webhook-initial-backoff", hook.InitialBackoff, "`time` before a failed call of the audit webhook is made again")
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
	prefix, batch := auditPrefix+sink+"-", &d.Batch
	fs.StringVar(&d.Mode, prefix+"mode", d.Mode, "`how` requests and audit events go together: batch (requests never wait), blocking (they do), or blocking-strict (and are refused if their arrival cannot be recorded)")
	fs.IntVar(&batch.BufferSize, prefix+"batch-buffer-size", batch.BufferSize, "how `many` events may wait; those that come then are dropped, and counted. Mode batch only")
	fs.IntVar(&batch.MaxSize, prefix+"batch-max-size", batch.MaxSize, "how `many` events a batch has at most. Mode batch only")
	fs.DurationVar(&batch.MaxWait, prefix+"batch-max-wait", batch.MaxWait, "`time` that events wait for a batch to be full. Mode batch only")
	fs.BoolVar(&batch.Throttle, prefix+"batch-throttle-enable", batch.Throttle, "bound how many batches are sent. Mode batch only")
	fs.Float32Var(&batch.QPS, prefix+"batch-throttle-qps", batch.QPS, "`batches` a second. Mode batch only")
	fs.IntVar(&batch.Burst, prefix+"batch-throttle-burst", batch.Burst, "`batches` at once after a quiet time. Mode batch only")
	fs.BoolVar(&d.Truncate, prefix+"truncate-enabled", d.Truncate, "leave the objects out of events that are too large")
	fs.Int64Var(&d.MaxEventBytes, prefix+"truncate-max-event-size", d.MaxEventBytes, "`bytes` that an event may have")
	fs.Int64Var(&d.MaxBatchBytes, prefix+"truncate-max-batch-size", d.MaxBatchBytes, "`bytes` that a batch may have")
}

// hideDetails leaves in the help of a command only the flags of audit that most
// need.
func hideDetails(fs *pflag.FlagSet) {
	fs.VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "audit-policy-file", "audit-log-path", "audit-log-mode", "audit-webhook-config-file":
		default:
			f.Hidden = f.Hidden || strings.HasPrefix(f.Name, auditPrefix)
		}
	})
}

// auditArgs returns the flags of audit that were given, for a child process.
func auditArgs(fs *pflag.FlagSet) (args []string) {
	fs.Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, auditPrefix) {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}
