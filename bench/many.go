package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// manyOptions are the flags of "bench definitions".
type manyOptions struct {
	options
	installed     int
	kubeAPIServer string
	kubectl       string
}

// newManyCommand returns the command that measures the creation of many definitions, and an installation that has many.
func newManyCommand() *cobra.Command {
	o := manyOptions{installed: 10000, options: options{
		workers: 8, connections: 4, rounds: 3, objects: 999, size: 3500, gets: 10000, lists: 10, watchers: 300, window: 50,
		definitions: 500, threads: 2, time: 3 * time.Second, rest: 30 * time.Second, limit: 20 * time.Minute,
	}}
	cmd := &cobra.Command{
		Use:   "definitions --portico PROGRAM",
		Short: "Measure the creation of many definitions, and an installation that has 10,000",
		Long: "Create definitions of 200 fields with CEL rules in a new installation, and measure the time until all are served, the\n" +
			"writes to etcd and the processor time; the yardsticks are raw etcd and, with --kube-apiserver, kube-apiserver. Then put\n" +
			"--installed of them into the etcd of a second installation, in groups of five, and measure it beside the first one.",
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.portico == "" || o.definitions < 1 || o.installed < 0 || o.workers < 1 || o.rest < time.Second {
				return errors.New("definitions needs --portico, at least 1 of --definitions and --workers, --installed of at least 0 and --rest of at least 1s")
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.limit, fmt.Errorf("not finished within --limit=%v", o.limit))
			defer cancel()
			return measureMany(ctx, &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.portico, "portico", "", "`program` to start new installations with, in temporary folders")
	fs.StringVar(&o.kubeAPIServer, "kube-apiserver", "", "`program` that creates the same definitions, as a yardstick")
	fs.StringVar(&o.kubectl, "kubectl", "", "`program` to measure \"kubectl api-resources\" with")
	fs.IntVar(&o.definitions, "definitions", o.definitions, "number of definitions to create")
	fs.IntVar(&o.installed, "installed", o.installed, "number of definitions of the second installation; 0: only measure creation")
	fs.IntVar(&o.workers, "workers", o.workers, "number of requests in flight")
	fs.IntVar(&o.rounds, "rounds", o.rounds, "number of rounds of each measurement of the two installations")
	fs.DurationVar(&o.rest, "rest", o.rest, "idle time in which memory and processor time are read")
	fs.StringVar(&o.profile, "profile", "", "`folder` for CPU profiles of the creation")
	fs.DurationVar(&o.limit, "limit", o.limit, "time limit of the run, without stopping the installations")
	return cmd
}

// measureMany runs both parts and prints the report.
func measureMany(ctx context.Context, o *manyOptions, out, errOut io.Writer) (err error) {
	report := newReport(&o.options)
	defer report.print(out) // what was measured, even after a failure
	if err := createInNew(ctx, *o, report, errOut); err != nil {
		return fmt.Errorf("create definitions: %w", err)
	}
	if o.installed == 0 {
		return nil
	}
	return measureInstalled(ctx, o, report, errOut)
}

// createInNew measures the creation of definitions in an installation that it starts and stops.
func createInNew(ctx context.Context, o manyOptions, report *report, errOut io.Writer) error {
	r, stop, err := startRunner(ctx, &o.options, "many", errOut)
	if err != nil {
		return err
	}
	r.report = report
	return errors.Join(r.createMany(ctx, &o), stop())
}

// manyDefinitions are the definitions of 200 fields: five in each group.
type manyDefinitions struct{ template, group string }

const perGroup = 5

// newManyDefinitions returns definitions in groups below a group.
func newManyDefinitions(group string) (*manyDefinitions, error) {
	sections := object{}
	for i := range 20 {
		sections[fmt.Sprintf("section%02d", i)] = manySection(i)
	}
	text := object{"type": "string"}
	data, err := json.Marshal(object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": "PLURAL.GROUP"},
		"spec": object{
			"group": "GROUP", "scope": "Namespaced", "names": object{"plural": "PLURAL", "singular": "KIND", "kind": "KIND", "listKind": "KINDList"},
			"versions": []object{{
				"name": "v1", "served": true, "storage": true, "subresources": object{"status": object{}},
				"additionalPrinterColumns": []object{{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}},
				"schema": object{"openAPIV3Schema": object{"type": "object", "properties": object{
					"spec": object{"type": "object", "properties": sections}, "status": object{"type": "object", "properties": object{"phase": text}},
				}}},
			}},
		},
	})
	return &manyDefinitions{string(data), group}, err
}

// manySection returns the schema of ten fields. Four of twenty sections have six rules, which is as many for their fields as
// definitions with rules have on average.
func manySection(i int) object {
	const describe = "as its controller understands it"
	count := object{"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000, "description": "Number of replicas, " + describe}
	name := object{"type": "string", "maxLength": 63, "description": "Name, " + describe}
	s := object{"type": "object", "description": "Section, " + describe, "properties": object{
		"minimum": count, "maximum": count, "name": name, "class": name,
		"enabled": object{"type": "boolean", "default": true},
		"policy":  object{"type": "string", "enum": []string{"Always", "Never"}, "default": "Always"},
		"hosts":   object{"type": "array", "maxItems": 16, "items": name},
		"labels":  object{"type": "object", "maxProperties": 16, "additionalProperties": object{"type": "string", "maxLength": 63}},
		"timeout": object{"type": "string", "maxLength": 20, "pattern": "^[0-9]+(ms|s|m|h)$", "description": "Longest time, " + describe},
	}}
	rules := []object{
		{"rule": "!has(self.minimum) || !has(self.maximum) || self.minimum <= self.maximum", "message": "minimum must not exceed maximum"},
		{"rule": "!has(self.hosts) || self.hosts.all(h, h.startsWith('h'))"},
	}
	if i%5 == 0 {
		s["x-kubernetes-validations"] = rules[:2-i/5%2]
	}
	return s
}

func (d *manyDefinitions) names(i int) (group, plural string) {
	return fmt.Sprintf("g%d.%s", i/perGroup, d.group), fmt.Sprintf("thing%d", i%perGroup)
}

// named returns the i-th definition in a text that has the placeholders of the template.
func (d *manyDefinitions) named(text string, i int) string {
	group, plural := d.names(i)
	return strings.NewReplacer("GROUP", group, "PLURAL", plural, "KIND", plural).Replace(text)
}

// collection returns the path of the objects of the i-th definition.
func (d *manyDefinitions) collection(i int) string {
	group, plural := d.names(i)
	return "/apis/" + group + "/v1/" + plural
}

// createServed creates n definitions and waits until all are served. Its latencies are those of the creates.
func (d *manyDefinitions) createServed(ctx context.Context, target *client, n, workers int, limit time.Duration) (sample, error) {
	began := time.Now()
	var done atomic.Int64
	s, err := drive(ctx, workers, bound{n, limit}, &done, func(ctx context.Context, worker, i int) (int64, error) {
		body := []byte(d.named(d.template, i))
		return target.discard(ctx, worker, request{method: "POST", path: definitionsPath, contentType: jsonType, body: body})
	})
	if err != nil {
		return s, err
	}
	_, err = drive(ctx, workers, bound{n, limit}, &done, func(ctx context.Context, worker, i int) (int64, error) {
		return 0, retryWhileStarting(ctx, pollFast, func() error {
			_, err := target.discard(ctx, worker, request{path: d.collection(i)})
			return err
		})
	})
	s.took = time.Since(began)
	if err == nil && done.Load() != int64(2*n) {
		err = fmt.Errorf("not all of %d were served within %v", n, limit)
	}
	return s, err
}

// createMany measures the creation of definitions.
func (r *runner) createMany(ctx context.Context, o *manyOptions) (err error) {
	d, err := newManyDefinitions(r.group)
	if err != nil {
		return err
	}
	if r.profiler, err = newProfiler(r.o, r.target, r.progress.say); err != nil {
		return err
	}
	from, err := r.revision(ctx)
	if err != nil {
		return err
	}
	wait := r.profiler.during(ctx, "create")
	before := r.procs.cpu()
	ours, err := d.createServed(ctx, r.target, o.definitions, o.workers, o.limit)
	if err != nil {
		return err
	}
	ours.cpu = r.procs.cpu().since(before)
	r.progress.say("%d definitions are served after %.2f s", o.definitions, ours.took.Seconds())
	wait()
	if err := r.countWrites(ctx, from, o.definitions); err != nil {
		return err
	}
	r.etcd.value = strings.Repeat("x", len(d.template))
	yard, err := drive(ctx, o.workers, bound{o.definitions, o.limit}, nil, r.etcd.create)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("create %d definitions of %d KB, %d at a time", o.definitions, len(d.template)/1000, o.workers)
	r.report.add(row{what: what, unit: "served/s", figure: sample.rate, ours: []sample{ours}, yard: []sample{yard}, yardstick: "raw etcd"})
	r.report.addFigure("the same, until all are served", ours.took.Seconds(), "s", 0.006*float64(o.definitions))
	if o.kubeAPIServer == "" {
		return nil
	}
	kube, err := createInKubeAPIServer(ctx, o)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	r.report.add(row{what: what, unit: "served/s", figure: sample.rate, ours: []sample{ours}, yard: []sample{kube}, yardstick: "kube-apiserver"})
	return nil
}

// revision returns the revision of etcd.
func (r *runner) revision(ctx context.Context) (int64, error) {
	res, err := r.etcd.client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read revision of etcd: %w", err)
	}
	return res.Header.Revision, nil
}

// countWrites reports the writes to etcd since a revision. It gives the gateways a second to write what they have to.
func (r *runner) countWrites(ctx context.Context, from int64, n int) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Second):
	}
	to, err := r.revision(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	definitions, services, others := 0, 0, 0
	at := from
	for res := range r.etcd.client.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(from+1), clientv3.WithProgressNotify()) {
		if err := res.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		for _, e := range res.Events {
			at = e.Kv.ModRevision
			switch key := string(e.Kv.Key); {
			case strings.Contains(key, "/customresourcedefinitions/"):
				definitions++
			case strings.Contains(key, "/apiservices/"):
				services++
			default:
				others++
			}
		}
		if at >= to {
			break
		}
	}
	groups := (n + perGroup - 1) / perGroup
	r.report.addFigure("writes to etcd of a definition", float64(definitions)/float64(n), "", 1)
	r.report.addFigure("writes to etcd of an APIService of a group", float64(services)/float64(groups), "", 0)
	r.report.addFigure("other writes to etcd meanwhile", float64(others), "", 0)
	return nil
}
