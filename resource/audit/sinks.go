package audit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/log"
	"k8s.io/apiserver/plugin/pkg/audit/truncate"
)

// eventVersion is the only version of events, which Options.Validate checks.
var eventVersion = auditv1.SchemeGroupVersion

// openSinks makes the sinks.
func (a *Auditor) openSinks(o *Options) error {
	var sinks []audit.Backend
	if o.Log.Path != "" {
		file, err := openLog(&o.Log)
		if err != nil {
			return fmt.Errorf("open audit log %s: %w", o.Log.Path, err)
		}
		sinks = append(sinks, a.deliver(log.NewBackend(file, o.Log.Format, eventVersion), o.Log.Delivery, 1))
	}
	if o.Webhook.ConfigFile != "" {
		hook, err := openWebhook(&o.Webhook)
		if err != nil {
			return fmt.Errorf("load audit webhook %s: %w", o.Webhook.ConfigFile, err)
		}
		sinks = append(sinks, a.deliver(hook, o.Webhook.Delivery, maxUnderWay))
	}
	a.sink = audit.Union(sinks...)
	return nil
}

// deliver returns a sink with a mode and truncation, which calls sink with up to atOnce
// concurrent batches.
func (a *Auditor) deliver(sink audit.Backend, d Delivery, atOnce int) audit.Backend {
	switch d.Mode {
	case ModeBatch:
		// Batches being sent count too, so upstream's own buffer is never full.
		limit := d.Batch.BufferSize + atOnce*d.Batch.MaxSize
		b := newBacklog(int64(limit), a.losses)
		a.waiting = append(a.waiting, func() int { return int(b.events.Load()) })
		b.next = buffered.NewBackend(b.taker(sink, atOnce), buffered.BatchConfig{
			BufferSize: limit, MaxBatchSize: d.Batch.MaxSize, MaxBatchWait: d.Batch.MaxWait,
			ThrottleEnable: d.Batch.Throttle, ThrottleQPS: d.Batch.QPS, ThrottleBurst: d.Batch.Burst,
		})
		sink = b
	case ModeBlocking:
		sink = forgiving{sink}
	}
	if d.Truncate {
		return truncate.NewBackend(sink, truncate.Config{MaxEventSize: d.MaxEventBytes, MaxBatchSize: d.MaxBatchBytes}, eventVersion)
	}
	return sink
}

// forgiving ignores the failures of a sink, which counts them itself.
type forgiving struct{ audit.Backend }

// ProcessEvents implements audit.Sink.
func (f forgiving) ProcessEvents(events ...*auditapi.Event) bool {
	f.Backend.ProcessEvents(events...)
	return true
}

// openLog opens the file of the log with mode 0600, and makes it if it does not exist.
func openLog(o *LogOptions) (io.Writer, error) {
	if o.Path == Standard {
		return os.Stdout, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(o.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil || o.MaxSize == 0 {
		return file, err
	}
	// lumberjack opens it again.
	return &lumberjack.Logger{
		Filename: o.Path, MaxAge: o.MaxAge, MaxBackups: o.MaxBackups, MaxSize: o.MaxSize, Compress: o.Compress,
	}, file.Close()
}
