package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// discoveryType is the media type of aggregated discovery.
const discoveryType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// installed are two installations: the second one has many definitions, the first one only that of the objects.
type installed struct {
	o         *manyOptions
	one, many *runner
	defs      *manyDefinitions
	report    *report
}

// measureInstalled starts the two installations and measures the second one beside the first one.
func measureInstalled(ctx context.Context, o *manyOptions, report *report, errOut io.Writer) (err error) {
	m := &installed{o: o, report: report}
	for name, r := range map[string]**runner{"one": &m.one, "many": &m.many} {
		options := o.options // of one installation
		var stop func() error
		if *r, stop, err = startRunner(ctx, &options, name, errOut); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err = (*r).setUp(ctx); err != nil {
			return err
		}
	}
	if m.defs, err = newManyDefinitions(m.many.group); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{m.install, m.idle, m.restart, m.idle, m.documents, m.change, m.apiResources, m.works} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// install creates one definition, writes copies of its stored form to etcd, and waits until all are served.
func (m *installed) install(ctx context.Context) error {
	r, n := m.many, m.o.installed
	if _, err := m.defs.createServed(ctx, r.target, 1, 1, r.o.limit); err != nil {
		return err
	}
	group, plural := m.defs.names(0)
	key := "/registry/apiextensions.k8s.io/customresourcedefinitions/"
	stored, err := r.etcd.client.Get(ctx, key+plural+"."+group)
	if err != nil || len(stored.Kvs) != 1 {
		return fmt.Errorf("read the stored definition %s: %d found, %v", plural+"."+group, len(stored.Kvs), err)
	}
	value := string(stored.Kvs[0].Value)
	uid := uidIn(stored.Kvs[0].Value)
	template := strings.NewReplacer(group, "GROUP", plural, "PLURAL", uid, "00000000-0000-4000-8000-NUMBER").Replace(value)
	began := time.Now()
	each := max(min(fillBytes/len(value), fillKeys), 1)
	var done atomic.Int64
	stop := r.progress.follow("transactions", &done, (n+each-1)/each)
	_, err = drive(ctx, r.o.workers, bound{(n + each - 1) / each, r.o.limit}, &done, func(ctx context.Context, _, i int) (int64, error) {
		var ops []clientv3.Op
		for n := max(i*each, 1); n < min((i+1)*each, m.o.installed); n++ {
			group, plural := m.defs.names(n)
			copied := strings.ReplaceAll(m.defs.named(template, n), "NUMBER", fmt.Sprintf("%012d", n))
			ops = append(ops, clientv3.OpPut(key+plural+"."+group, copied))
		}
		_, err := r.etcd.client.Txn(ctx).Then(ops...).Commit()
		return 0, err
	})
	stop()
	if err != nil {
		return fmt.Errorf("fill etcd: %w", err)
	}
	if err := m.served(ctx); err != nil {
		return err
	}
	m.report.addFigure(fmt.Sprintf("%d definitions of %d KB put into etcd, until all are served", n, len(value)/1000), time.Since(began).Seconds(), "s", 0)
	return nil
}

// served waits until discovery has all definitions and the last one answers. Asking for the objects of each would make
// metrics of each.
func (m *installed) served(ctx context.Context) error {
	return until(ctx, func() error {
		all, err := m.many.target.read(ctx, 0, request{path: "/apis", accept: discoveryType})
		if n := bytes.Count(all, []byte(`"resource":"thing`)); err == nil && n < m.o.installed {
			err = fmt.Errorf("discovery has %d of %d resources", n, m.o.installed)
		}
		if err == nil {
			_, err = m.many.target.discard(ctx, 0, request{path: m.defs.collection(m.o.installed - 1)})
		}
		return err
	})
}

// idle lets the installations rest and reports memory and processor time.
func (m *installed) idle(ctx context.Context) error {
	r := m.many
	r.progress.say("idle for %v, twice", m.o.rest)
	for range 2 {
		one, many := m.one.procs.cpu(), r.procs.cpu()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(m.o.rest):
		}
		one, many = m.one.procs.cpu().since(one), r.procs.cpu().since(many)
		share := func(spent cpuTimes) (percent float64) {
			for name, d := range spent {
				if name != self {
					percent += 100 * d.Seconds() / m.o.rest.Seconds()
				}
			}
			return percent
		}
		m.report.note("at rest for %v with one definition: %v; with many: %v", m.o.rest, one, many)
		m.report.addFigure(fmt.Sprintf("at rest, of a processor (with one definition %.1f %%)", share(one)), share(many), "%", 2)
	}
	m.report.addMemory(fmt.Sprintf("idle with %d definitions", m.o.installed), r.procs.memory())
	var sum int64
	for _, pid := range r.procs {
		n, err := proportional(pid)
		if err != nil {
			return err
		}
		sum += n
	}
	m.report.addSize("memory of all processes, etcd included (PSS)", sum, 800)
	return nil
}

// restart stops "portico up" and starts it again.
func (m *installed) restart(ctx context.Context) (err error) {
	r := m.many
	r.target.close()
	if err := r.installation.halt(); err != nil {
		return err
	}
	started := time.Now()
	err = r.installation.launch(r.o.portico, "--listen=127.0.0.1:0", "--data-dir="+r.o.dataDir, fmt.Sprintf("--profiling=%t", r.o.profile != ""))
	if err == nil {
		err = r.installation.awaitReady(ctx)
	}
	if err != nil {
		return err
	}
	m.report.addFigure("portico up until ready, with the definitions", time.Since(started).Seconds(), "s", 5)
	if r.target, err = openTarget(ctx, r.o); err != nil {
		return err
	}
	if r.procs, err = findProcesses(r.o.dataDir); err != nil {
		return err
	}
	if r.profiler, err = newProfiler(r.o, r.target, r.progress.say); err != nil {
		return err
	}
	began := time.Now()
	if err := m.served(ctx); err != nil {
		return err
	}
	m.report.addFigure("from then until discovery has all", time.Since(began).Seconds(), "s", 0)
	return nil
}

// repeats is the number of requests of which a median is taken.
const repeats = 21

// documents measures discovery and the index of OpenAPI.
func (m *installed) documents(ctx context.Context) error {
	for _, doc := range []struct {
		what string
		request
		bar float64
	}{
		{"GET /apis, aggregated", request{path: "/apis", accept: discoveryType}, 10},
		{"GET /openapi/v3", request{path: "/openapi/v3"}, 20},
	} {
		var size int64
		times, err := drive(ctx, 1, bound{repeats, m.o.limit}, nil, func(ctx context.Context, _, _ int) (n int64, err error) {
			size, err = m.many.target.discard(ctx, 0, doc.request)
			return size, err
		})
		if err != nil {
			return err
		}
		m.report.addFigure(fmt.Sprintf("%s, %.1f MB, median of %d", doc.what, float64(size)/1e6, repeats), milliseconds(times.quantile(0.5)), "ms", doc.bar)
	}
	return nil
}

// change measures the creation of a definition, and when discovery has it.
func (m *installed) change(ctx context.Context) error {
	d := &manyDefinitions{m.defs.template, "new." + m.many.group}
	wait := m.many.profiler.during(ctx, "change")
	defer wait()
	var told, served []time.Duration
	creates, err := drive(ctx, 1, bound{repeats, m.o.limit}, nil, func(ctx context.Context, _, i int) (int64, error) {
		i *= perGroup // a group each
		body := []byte(d.named(d.template, i))
		if _, err := m.many.target.discard(ctx, 0, request{method: "POST", path: definitionsPath, contentType: jsonType, body: body}); err != nil {
			return 0, err
		}
		accepted := time.Now()
		group, _ := d.names(i)
		for _, wait := range []struct {
			path string
			took *[]time.Duration
		}{{"/apis/" + group, &told}, {d.collection(i), &served}} {
			err := retryWhileStarting(ctx, pollGently, func() error {
				_, err := m.many.target.discard(ctx, 0, request{path: wait.path})
				return err
			})
			if err != nil {
				return 0, err
			}
			*wait.took = append(*wait.took, time.Since(accepted))
		}
		return 0, nil
	})
	if err != nil {
		return err
	}
	group, _ := d.names((repeats - 1) * perGroup)
	all, err := m.many.target.read(ctx, 0, request{path: "/apis", accept: discoveryType})
	if err == nil && !bytes.Contains(all, []byte(`"`+group+`"`)) {
		err = fmt.Errorf("the aggregated document does not have %s", group)
	}
	if err != nil {
		return err
	}
	m.report.addFigure("definition accepted until in discovery, median", milliseconds(sample{latencies: told}.quantile(0.5)), "ms", 50)
	m.report.addFigure("definition accepted until served, median", milliseconds(sample{latencies: served}.quantile(0.5)), "ms", 0)
	m.report.addFigure("definition created and served, median", milliseconds(creates.quantile(0.5)), "ms", 0)
	return nil
}

// apiResources measures "kubectl api-resources" without a cache.
func (m *installed) apiResources(ctx context.Context) error {
	if m.o.kubectl == "" {
		return nil
	}
	times, err := drive(ctx, 1, bound{3, m.o.limit}, nil, func(ctx context.Context, _, _ int) (int64, error) {
		cache, err := os.MkdirTemp("", "portico-bench-")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(cache)
		out, err := exec.CommandContext(ctx, m.o.kubectl, "--kubeconfig="+m.many.o.kubeconfig, "--cache-dir="+cache, "api-resources", "--no-headers").Output()
		if n := bytes.Count(out, []byte("\n")); err == nil && n < m.o.installed {
			err = fmt.Errorf("it has %d resources", n)
		}
		return 0, err
	})
	if err != nil {
		return fmt.Errorf("kubectl api-resources: %w", err)
	}
	m.report.addFigure("kubectl api-resources", times.quantile(0.5).Seconds(), "s", 3)
	return nil
}

// works measures work on objects of one definition in both installations, in turns.
func (m *installed) works(ctx context.Context) error {
	return compareWork(ctx, m.report, []*runner{m.one, m.many}, []string{"one definition", "many"}, workloads, 0.8)
}
