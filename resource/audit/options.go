package audit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/plugin/pkg/audit/log"
	"k8s.io/apiserver/plugin/pkg/audit/webhook"
)

// Modes of delivery.
const (
	// ModeBatch queues events; requests do not wait.
	ModeBatch = "batch"
	// ModeBlocking delivers events before the request ends.
	ModeBlocking = "blocking"
	// ModeBlockingStrict is ModeBlocking, and rejects a request if its event of stage
	// RequestReceived cannot be delivered.
	ModeBlockingStrict = "blocking-strict"
)

// Formats of the log.
const (
	FormatJSON   = log.FormatJson
	FormatLegacy = log.FormatLegacy
)

// Options select what is audited and the sinks. Their meaning and defaults are those of
// kube-apiserver's flags.
type Options struct {
	// PolicyFile has the Policy; "": nothing is audited.
	PolicyFile string
	Log        LogOptions
	Webhook    WebhookOptions
}

// LogOptions configure the log file.
type LogOptions struct {
	// Path is the file, or Standard; "": no log.
	Path string
	// MaxAge, in days, and MaxBackups bound the rotated files; 0: no bound.
	MaxAge, MaxBackups int
	// MaxSize is the size at which a file is rotated, in megabytes; 0: never.
	MaxSize int
	// Compress compresses rotated files.
	Compress bool
	// Format is FormatJSON or FormatLegacy.
	Format string
	// Version is the group and version of events.
	Version  string
	Delivery Delivery
}

// WebhookOptions configure the webhook.
type WebhookOptions struct {
	// ConfigFile is a kubeconfig that names the webhook; "": no webhook.
	ConfigFile string
	// InitialBackoff is the wait before the first retry; each further one is half as long
	// again.
	InitialBackoff time.Duration
	// Version is the group and version of events.
	Version  string
	Delivery Delivery
	// Dial connects to the webhook; nil: directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Delivery configures the delivery to a sink.
type Delivery struct {
	// Mode is one of the modes. Batch applies to ModeBatch only.
	Mode  string
	Batch Batch
	// Truncate removes the objects of events that are too large.
	Truncate bool
	// MaxEventBytes and MaxBatchBytes bound an event and a batch, for Truncate.
	MaxEventBytes, MaxBatchBytes int64
}

// Batch configures batches.
type Batch struct {
	// BufferSize bounds the queued events; further ones are dropped and counted.
	BufferSize int
	// MaxSize bounds the events of a batch, and MaxWait how long the first of them waits.
	MaxSize int
	MaxWait time.Duration
	// Throttle limits batches to QPS a second, with a burst of Burst.
	Throttle bool
	QPS      float32
	Burst    int
}

// Standard is the path of the standard output.
const Standard = "-"

// DefaultOptions returns the defaults: nothing is audited.
func DefaultOptions() Options {
	const buffer = 10000
	truncation := Delivery{MaxEventBytes: 100 << 10, MaxBatchBytes: 10 << 20}
	toLog, toWebhook := truncation, truncation
	toLog.Mode, toLog.Batch = ModeBlocking, Batch{BufferSize: buffer, MaxSize: 1}
	toWebhook.Mode = ModeBatch
	toWebhook.Batch = Batch{BufferSize: buffer, MaxSize: 400, MaxWait: 30 * time.Second, Throttle: true, QPS: 10, Burst: 15}
	version := auditv1.SchemeGroupVersion.String()
	return Options{
		Log:     LogOptions{MaxAge: 366, MaxBackups: 100, MaxSize: 100, Format: FormatJSON, Version: version, Delivery: toLog},
		Webhook: WebhookOptions{InitialBackoff: webhook.DefaultInitialBackoffDelay, Version: version, Delivery: toWebhook},
	}
}

// Validate returns all mistakes, with the names of the flags. Options that are not used
// are not checked.
func (o *Options) Validate() error {
	var errs []error
	if o.Log.Path != "" {
		errs = append(errs, o.Log.Delivery.validate("audit-log"), validateVersion("audit-log", o.Log.Version),
			oneOf("audit-log-format", o.Log.Format, FormatJSON, FormatLegacy),
			atLeast("audit-log-maxage", o.Log.MaxAge, 0), atLeast("audit-log-maxbackup", o.Log.MaxBackups, 0), atLeast("audit-log-maxsize", o.Log.MaxSize, 0))
	}
	if o.Webhook.ConfigFile != "" {
		errs = append(errs, o.Webhook.Delivery.validate("audit-webhook"), validateVersion("audit-webhook", o.Webhook.Version),
			atLeast("audit-webhook-initial-backoff", o.Webhook.InitialBackoff, 0))
	}
	return errors.Join(errs...)
}

func (d *Delivery) validate(prefix string) error {
	errs := []error{oneOf(prefix+"-mode", d.Mode, ModeBatch, ModeBlocking, ModeBlockingStrict)}
	if d.Mode == ModeBatch {
		errs = append(errs, atLeast(prefix+"-batch-buffer-size", d.Batch.BufferSize, 1), atLeast(prefix+"-batch-max-size", d.Batch.MaxSize, 1),
			atLeast(prefix+"-batch-max-wait", d.Batch.MaxWait, 0))
		if d.Batch.Throttle {
			errs = append(errs, atLeast(prefix+"-batch-throttle-burst", d.Batch.Burst, 1))
			if !(d.Batch.QPS > 0) {
				errs = append(errs, fmt.Errorf("--%s-batch-throttle-qps=%v: must be above 0", prefix, d.Batch.QPS))
			}
		}
	}
	errs = append(errs, atLeast(prefix+"-truncate-max-event-size", d.MaxEventBytes, 1))
	if d.MaxBatchBytes < d.MaxEventBytes {
		errs = append(errs, fmt.Errorf("--%s-truncate-max-batch-size=%d: must be at least --%[1]s-truncate-max-event-size=%[3]d",
			prefix, d.MaxBatchBytes, d.MaxEventBytes))
	}
	return errors.Join(errs...)
}

func validateVersion(prefix, version string) error {
	return oneOf(prefix+"-version", version, auditv1.SchemeGroupVersion.String())
}

func oneOf(name, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s=%s: choose %s", name, value, strings.Join(allowed, " or "))
}

func atLeast[T int | int64 | time.Duration](name string, value, least T) error {
	if value >= least {
		return nil
	}
	return fmt.Errorf("--%s=%v: must be at least %v", name, value, least)
}

// metricPrefix is the prefix of upstream's audit metrics.
const metricPrefix = "apiserver_audit_"

// Metrics returns the prefixes of upstream's audit metrics in the registry of component-base;
// nil without a policy.
func (o *Options) Metrics() []string {
	if o.PolicyFile == "" {
		return nil
	}
	return []string{metricPrefix}
}
