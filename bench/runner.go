package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// runner is one run.
type runner struct {
	o        *options
	progress *progress
	report   *report
	target   *client
	chain    *chain   // for the answers of the current subject
	etcd     *rawEtcd // nil without --etcd
	procs    processes
	profiler *profiler
	// installation is the one that startRunner started.
	installation *installation

	// group and namespace are new in each run, so that runs do not conflict.
	group, namespace string
	mu               sync.Mutex
	definitions      []string // names, to be deleted
	hasNamespace     bool

	updated   int64  // the last sequence number that an update wrote
	lastWatch replay // events of the last watchLive
}

// measure runs the selected scenarios, against a new installation if --portico is
// set, and prints the report.
func measure(ctx context.Context, o *options, out, errOut io.Writer) (err error) {
	say := &progress{out: errOut, began: time.Now()}
	if o.portico != "" {
		own, err := startInstallation(ctx, o)
		if err != nil {
			return err
		}
		say.say("started an installation in %s", own.dir)
		return errors.Join(measureAt(ctx, o, out, say), own.stop())
	}
	if o.dataDir == "" {
		o.dataDir = filepath.Dir(o.kubeconfig)
	}
	return measureAt(ctx, o, out, say)
}

// measureAt measures the running installation of o.
func measureAt(ctx context.Context, o *options, out io.Writer, say *progress) (err error) {
	id := strconv.FormatInt(time.Now().UnixNano(), 36)
	r := &runner{
		o: o, progress: say, report: newReport(o),
		group: "bench-" + id + ".example.com", namespace: "bench-" + id,
	}
	if r.target, err = openTarget(ctx, o); err != nil {
		return err
	}
	defer r.target.close()
	if r.procs, err = findProcesses(o.dataDir); err != nil {
		r.report.note("memory and CPU are not measured; they need the --data-dir of a \"portico up\": %v", err)
	}
	if r.profiler, err = newProfiler(o, r.target, r.progress.say); err != nil {
		return err
	}
	if err := r.openEtcd(ctx, id); err != nil {
		return err
	}
	if r.etcd != nil {
		defer r.etcd.client.Close()
	}
	limited, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not finished within --limit=%v", o.limit))
	defer cancel()
	failed := r.run(limited)
	// The results so far are printed even after a failure.
	if o.json {
		failed = errors.Join(failed, r.report.writeJSON(out))
	} else {
		r.report.print(out)
	}
	return errors.Join(failed, r.clean(context.WithoutCancel(ctx)))
}

// startRunner starts an installation and returns a runner for it; stop ends the installation.
func startRunner(ctx context.Context, o *options, name string, errOut io.Writer) (r *runner, stop func() error, err error) {
	own, err := startInstallation(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	r = &runner{o: o, installation: own, progress: &progress{out: errOut, began: time.Now()}, report: newReport(o), group: "bench-" + name + ".example.com", namespace: "bench-" + name}
	stop = func() error {
		if r.target != nil {
			r.target.close()
		}
		if r.etcd != nil {
			r.etcd.client.Close()
		}
		return own.stop()
	}
	if r.target, err = openTarget(ctx, o); err == nil {
		if r.procs, err = findProcesses(o.dataDir); err == nil {
			err = r.openEtcd(ctx, name)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	r.progress.say("started an installation in %s", own.dir)
	return r, stop, nil
}

func (r *runner) openEtcd(ctx context.Context, id string) (err error) {
	if r.o.etcd == "" {
		r.report.note("create has no yardstick without --etcd")
		return nil
	}
	r.etcd, err = openEtcd(ctx, r.o, id, r.o.size)
	return err
}

// run runs the scenarios. A failed scenario is reported and does not stop the next.
func (r *runner) run(ctx context.Context) error {
	r.addMemory("at the start")
	var failures []error
	try := func(what string, err error) {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
			r.progress.say("failed: %v", err)
			failures = append(failures, err)
		}
	}
	if r.o.needsObjects() {
		if err := r.setUp(ctx); err != nil {
			return err
		}
		try("custom resources", r.work(ctx, customResources(r.group, r.namespace)))
		for _, kind := range r.o.also {
			if ctx.Err() == nil {
				try(kind, r.work(ctx, builtIn[kind](r.namespace)))
			}
		}
	}
	if r.o.runs(scenarioDefinitions) && ctx.Err() == nil {
		try("definitions", r.defineAll(ctx))
	}
	return errors.Join(failures...)
}

// work runs the scenarios that need objects.
func (r *runner) work(ctx context.Context, s *subject) error {
	size, err := s.calibrate(ctx, r.target, r.o.size)
	if err != nil {
		return err
	}
	if err := r.createAll(ctx, s, size); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := r.addServerMemory(ctx, s, fmt.Sprintf("%d %s", r.o.objects, s.name), memoryBar); err != nil {
		return err
	}
	now, err := s.listNow(ctx, r.target, r.o.objects)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	r.chain, err = startChain(ctx, childConfig{Object: size, List: now.bytes, Frame: size + int64(len(modifiedFrame)+len("\"object\":}\n"))}, r.o.connections)
	if err != nil {
		return err
	}
	defer r.chain.stop()
	var failures []error
	for _, step := range []struct {
		scenario string
		run      func() error
	}{
		{scenarioGet, func() error { return r.getAll(ctx, s, size) }},
		{scenarioList, func() error { return r.listAll(ctx, s, now.bytes) }},
		{scenarioWatch, func() error { return r.watchAll(ctx, s) }},
	} {
		if !r.o.runs(step.scenario) || ctx.Err() != nil {
			continue
		}
		if err := step.run(); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", step.scenario, err))
		}
	}
	if err := context.Cause(ctx); err != nil {
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// contender is a work or a yardstick that runs once in each round.
type contender struct {
	name  string
	procs processes // their CPU time is read
	// profile is the name of the profiles; empty for none.
	profile string
	// prepare runs before each round and is not measured; it may be nil.
	prepare func(ctx context.Context) error
	run     func(ctx context.Context, round int) (sample, error)
}

// turns runs the contenders in turns and returns the samples of each by round.
func (r *runner) turns(ctx context.Context, figure func(sample) string, all ...contender) ([][]sample, error) {
	results := make([][]sample, len(all))
	for round := range r.o.rounds {
		for i, c := range all {
			if c.prepare != nil {
				if err := c.prepare(ctx); err != nil {
					return nil, fmt.Errorf("%s: %w", c.name, err)
				}
			}
			wait := func() {}
			if c.profile != "" {
				wait = r.profiler.during(ctx, fmt.Sprintf("%s-%d", c.profile, round+1))
			}
			before := c.procs.cpu()
			s, err := c.run(ctx, round)
			wait()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			s.cpu = c.procs.cpu().since(before)
			r.progress.say("%s, round %d of %d: %s", c.name, round+1, r.o.rounds, figure(s))
			results[i] = append(results[i], s)
		}
	}
	return results, nil
}

// addMemory adds the memory of the processes to the report.
func (r *runner) addMemory(when string) {
	if len(r.procs) > 0 {
		r.report.addMemory(when, r.procs.memory())
	}
}

// addServerMemory adds the memory of all processes to the report, and that of the
// subject's server as a result: at once, with garbage, and after --rest. The bar
// applies to the CRD server with defaultObjects or more.
func (r *runner) addServerMemory(ctx context.Context, s *subject, when string, bar float64) error {
	pid, ok := r.procs[s.server]
	if !ok {
		return nil
	}
	if s.server != "crd" || r.o.objects < defaultObjects {
		bar = 0
	}
	add := func(when string) error {
		r.addMemory(when)
		bytes, err := anonymous(pid)
		if err == nil {
			r.report.addSize(s.server+" server, RssAnon, "+when, bytes, bar)
		}
		return err
	}
	if err := add(when); err != nil || r.o.rest == 0 {
		return err
	}
	r.progress.say("idle for %v, in which servers return memory to the system", r.o.rest)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(r.o.rest):
	}
	return add(when + ", after idling")
}

// sayEvery is the interval between messages about a measurement.
const sayEvery = 3 * time.Second

// progress writes messages to the user. It is safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

// say writes a line with the time since the start.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// follow writes count every sayEvery, until the returned function is called.
func (p *progress) follow(what string, count *atomic.Int64, of int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				p.say("%s: %d of %d", what, count.Load(), of)
			}
		}
	}()
	return func() { close(end); <-ended }
}
