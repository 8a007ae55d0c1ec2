package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/plugin/pkg/audit/log"
	"k8s.io/apiserver/plugin/pkg/audit/webhook"
)

// Modes of handing events to a sink.
const (
	// ModeBatch has events wait in a buffer; requests never do.
	ModeBatch = "batch"
	// ModeBlocking has every request wait until its events are handed over.
	ModeBlocking = "blocking"
	// ModeBlockingStrict is ModeBlocking, and a request whose arrival cannot be
	// recorded is refused.
	ModeBlockingStrict = "blocking-strict"
)

// Formats of the log.
const (
	FormatJSON   = log.FormatJson
	FormatLegacy = log.FormatLegacy
)

// Options say what is audited and where events go. Their meaning and defaults
// are those of the flags of kube-apiserver.
type Options struct {
	// PolicyFile is the Policy; "": nothing is audited.
	PolicyFile string
	Log        LogOptions
	Webhook    WebhookOptions
}

// LogOptions are those of the log file.
type LogOptions struct {
	// Path is the file, or Standard; "": there is no log.
	Path string
	// MaxAge is how many days, and MaxBackups how many, files that were rotated
	// out are kept; 0: without end.
	MaxAge, MaxBackups int
	// MaxSize is how many megabytes a file may have before it is rotated out; 0:
	// it never is.
	MaxSize int
	// Compress has rotated files compressed.
	Compress bool
	// Format is FormatJSON or FormatLegacy.
	Format string
	// Version is the group and version of events.
	Version  string
	Delivery Delivery
}

// WebhookOptions are those of the webhook.
type WebhookOptions struct {
	// ConfigFile is a kubeconfig that names the webhook; "": there is none.
	ConfigFile string
	// InitialBackoff is the wait before a failed call is made again; each further
	// one is half as long again.
	InitialBackoff time.Duration
	// Version is the group and version of events.
	Version  string
	Delivery Delivery
}

// Delivery is how events get to a sink.
type Delivery struct {
	// Mode is one of the modes. Batch is for ModeBatch only.
	Mode  string
	Batch Batch
	// Truncate has events that are too large lose their objects.
	Truncate bool
	// MaxEventBytes and MaxBatchBytes are how large an event and a batch may be.
	MaxEventBytes, MaxBatchBytes int64
}

// Batch bounds batches.
type Batch struct {
	// BufferSize is how many events may wait; those that come then are lost, and
	// counted.
	BufferSize int
	// MaxSize is how many events a batch has at most, and MaxWait how long the
	// first of them waits for others.
	MaxSize int
	MaxWait time.Duration
	// Throttle bounds batches to QPS a second, and Burst at once.
	Throttle bool
	QPS      float32
	Burst    int
}

// Standard is the path of the log that stands for the standard output.
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

// Validate returns everything that is wrong. Options are named as flags are.
// What is not in use is not looked at.
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
				errs = append(errs, fmt.Errorf("--%s-batch-throttle-qps=%v: it must be above 0", prefix, d.Batch.QPS))
			}
		}
	}
	errs = append(errs, atLeast(prefix+"-truncate-max-event-size", d.MaxEventBytes, 1))
	if d.MaxBatchBytes < d.MaxEventBytes {
		errs = append(errs, fmt.Errorf("--%s-truncate-max-batch-size=%d: a batch must have room for one event, --%[1]s-truncate-max-event-size=%[3]d",
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
	return fmt.Errorf("--%s=%v: it must be %v at least", name, value, least)
}
