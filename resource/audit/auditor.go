package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"

	"portico/resource/fairshare"
)

// flushTimeout bounds how long Run delivers events after its context has ended.
const flushTimeout = 5 * time.Second

// Auditor audits the requests of one process. Safe for concurrent use.
type Auditor struct {
	policy  audit.PolicyRuleEvaluator
	sink    audit.Backend
	losses  *losses
	waiting []func() int // number of queued events by sink
	log     *slog.Logger
	flush   time.Duration // flushTimeout
	// recorded limits the memory of recordings, in bytes.
	recorded *fairshare.Limit
}

// Open returns the Auditor of the options; nil without a policy or without a sink. It creates
// the log file and starts nothing. Errors name the file and the mistake in it.
func Open(o Options, logger *slog.Logger) (*Auditor, error) {
	if logger == nil {
		logger = slog.Default()
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	hasSink := o.Log.Path != "" || o.Webhook.ConfigFile != ""
	switch {
	case o.PolicyFile == "" && hasSink:
		logger.Warn("nothing is audited: set --audit-policy-file")
		return nil, nil
	case o.PolicyFile == "":
		return nil, nil
	}
	rules, err := policy.LoadPolicyFromFile(o.PolicyFile)
	switch {
	case err != nil:
		return nil, fmt.Errorf("load audit policy %s: %w", o.PolicyFile, err)
	case !hasSink:
		logger.Warn("nothing is audited: set --audit-log-path or --audit-webhook-config-file")
		return nil, nil
	}
	a := &Auditor{policy: policy.NewPolicyRuleEvaluator(rules), log: logger, flush: flushTimeout, recorded: fairshare.New(maxRecorded, 0)}
	if a.losses, err = newLosses(logger); err != nil {
		return nil, err
	}
	if err := a.openSinks(&o); err != nil {
		return nil, err
	}
	return a, nil
}

// Check returns the error of Open, but does not open the log file.
func (o *Options) Check() error {
	checked := *o
	if checked.Log.Path != "" {
		checked.Log.Path = "-"
	}
	_, err := Open(checked, slog.New(slog.DiscardHandler))
	return err
}

// CheckLog returns the error of Open. It creates the log file.
func (o *Options) CheckLog() error {
	checked := *o
	if checked.Log.MaxSize == 0 {
		checked.Log.MaxSize = 1 // without rotation the file would stay open
	}
	_, err := Open(checked, slog.New(slog.DiscardHandler))
	return err
}

// Run delivers events until ctx ends, and then the queued ones, within flushTimeout; no
// request may follow. A nil Auditor waits for ctx.
func (a *Auditor) Run(ctx context.Context) error {
	if a == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	stop := make(chan struct{})
	if err := a.sink.Run(stop); err != nil {
		return fmt.Errorf("run audit: %w", err)
	}
	<-ctx.Done()
	close(stop)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.sink.Shutdown()
	}()
	select {
	case <-done:
	case <-time.After(a.flush):
		lost := 0
		for _, waiting := range a.waiting {
			lost += waiting()
		}
		a.log.Error("audit events were not delivered in time", "events", lost, "waited", a.flush)
	}
	return ctx.Err()
}

// errNotStored rejects a request without a stored event of stage RequestReceived.
var errNotStored = errors.New("failed to store audit event")
