package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Parts of the proxy benchmark, as --only takes them.
const (
	partRate    = "rate"
	partLatency = "latency"
	partWatches = "watches"
	partGroups  = "groups"
)

var proxyParts = []string{partRate, partLatency, partWatches, partGroups}

// proxyOptions are the flags of "load proxy".
type proxyOptions struct {
	portico, profile   string
	against            string
	only, protocols    []string
	others, audit      bool
	json, realTime     bool
	awake              bool
	rounds, atOnce     int
	time, limit, quiet time.Duration
	turn               time.Duration
	lasting, window    time.Duration
	rate               int
	watches, groups    int
	size               int
}

const proxyExample = `  # everything: eight minutes
  load proxy --portico ./portico

  # only how much work a request is, over HTTP/1.1
  load proxy --portico ./portico --only rate --protocols h1

  # what a change makes of it
  load proxy --portico ./portico --against ./portico.before --only rate,latency --others=false

  # latency under traffic that lasts, half a minute each in turns of a second
  load proxy --portico ./portico --only latency --others=false --lasting 30s --turn 1s

  # with CPU profiles of the gateway
  load proxy --portico ./portico --only rate --profile ./profiles`

// newProxyCommand makes the command that measures the way through the gateway
// to a registered server.
func newProxyCommand() *cobra.Command {
	var o proxyOptions
	cmd := &cobra.Command{
		Use:   "proxy --portico PROGRAM",
		Short: "Measure the gateway as a proxy, beside a bare ReverseProxy, nginx and haproxy",
		Long: "Measure the gateway as a proxy, beside a bare ReverseProxy, nginx and haproxy where they are installed.\n" +
			"Each of them has a processor of its own, the load and a server with ready answers another one. They take turns.",
		Example: proxyExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			collectBetween()
			runtime.GOMAXPROCS(1)
			return measureProxies(cmd.Context(), &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.portico, "portico", "", "`program` to start an installation with, in a temporary folder")
	fs.StringVar(&o.against, "against", "", "another `program`, of another commit, whose gateway takes part in rate and latency, on the same data")
	fs.StringSliceVar(&o.only, "only", proxyParts, "`parts` to measure")
	fs.StringSliceVar(&o.protocols, "protocols", []string{http1, http2Name}, "`protocols` that the clients speak")
	fs.BoolVar(&o.others, "others", true, "let nginx and haproxy take part, if they are installed")
	fs.BoolVar(&o.audit, "audit", true, "have the gateway write an audit log: a line for every request")
	fs.IntVar(&o.rounds, "rounds", 3, "how often each measurement takes its turn")
	fs.DurationVar(&o.time, "time", 2*time.Second, "how long each has in one of the rounds where rates are measured, in turns")
	fs.DurationVar(&o.turn, "turn", defaultTurn, "how long one turn takes where rate and latency are measured")
	fs.DurationVar(&o.lasting, "lasting", 12*time.Second, "how long each has where the latency is measured, in turns, after half as long that does not count")
	fs.DurationVar(&o.window, "window", 3*time.Second, "over how much of that a 99th percentile is taken: collections of garbage are to be in it")
	fs.IntVar(&o.atOnce, "workers", 16, "how many requests at a time where the rate is measured")
	fs.IntVar(&o.size, "size", 3500, "bytes of the larger answer")
	fs.IntVar(&o.rate, "requests", 5000, "requests a second where the latency is measured")
	fs.BoolVar(&o.realTime, "real-time", true, "have the kernel schedule everybody who takes part before what else runs on the machine (SCHED_RR)")
	fs.BoolVar(&o.awake, "awake", true, "keep the processors from halting where the latency is measured, as idle=poll does: what it takes to wake them is not the proxies'")
	fs.IntVar(&o.watches, "watches", 4000, "how many idle watches")
	fs.DurationVar(&o.quiet, "quiet", 10*time.Second, "how long watches are idle before memory is read")
	fs.IntVar(&o.groups, "groups", 1000, "how many registered groups to compare with 10")
	fs.StringVar(&o.profile, "profile", "", "`folder` for CPU profiles of the gateway; they slow it down a little")
	fs.BoolVar(&o.json, "json", false, "print the report as JSON")
	fs.DurationVar(&o.limit, "limit", 15*time.Minute, "how long everything may take")
	return cmd
}

func (o *proxyOptions) check() error {
	if o.portico == "" {
		return errors.New("--portico names the program to measure")
	}
	for _, list := range []struct {
		name       string
		given, all []string
	}{{"only", o.only, proxyParts}, {"protocols", o.protocols, []string{http1, http2Name}}} {
		for _, s := range list.given {
			if !slices.Contains(list.all, s) {
				return fmt.Errorf("--%s=%s: choose of %s", list.name, s, strings.Join(list.all, ", "))
			}
		}
	}
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"rounds", o.rounds, 1, 100}, {"workers", o.atOnce, 1, 1000}, {"size", o.size, smallObject, 10000000},
		{"requests", o.rate, 1, 100000}, {"watches", o.watches, 1, 8000},
		{"groups", o.groups, fewGroups, 5000},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("--%s=%d: choose a number from %d to %d", f.name, f.value, f.min, f.max)
		}
	}
	if o.turn < 50*time.Millisecond || o.turn > time.Duration(o.rounds)*o.time {
		return errors.New("--turn is 50ms to what --rounds times --time come to")
	}
	if o.window < o.turn || o.lasting < o.window {
		return errors.New("--window is --turn at least, and --lasting is --window at least")
	}
	if o.time < 100*time.Millisecond || o.time > time.Minute || o.quiet < 0 || o.limit < time.Second {
		return errors.New("--time is 100ms to 1m, --quiet 0s at least, --limit 1s at least")
	}
	return nil
}

// proxyRun is one run.
type proxyRun struct {
	*progress
	o       *proxyOptions
	cores   *cores
	first   bool // everybody is scheduled before what else runs
	dir     string
	backend chainAddress
	server  *http.Client // of the backend
	stack   *proxyStack
	token   string
	// direct, bare and gateway take part in everything; all has the others, too,
	// in the order of the report.
	direct, bare, gateway *front
	all                   []*front
	report                *proxyReport
}

// measureProxies starts everybody, measures and prints the report.
func measureProxies(ctx context.Context, o *proxyOptions, out, errOut io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("it took longer than --limit=%v", o.limit))
	defer cancel()
	r := &proxyRun{o: o, progress: &progress{out: errOut, began: time.Now()}, report: newProxyReport(o)}
	var note string
	if r.cores, note = newCores(); note != "" {
		r.report.note("%s", note)
	}
	if o.realTime {
		note, r.first = runFirst()
		r.report.note("%s", note)
	}
	if o.audit {
		r.report.note("the gateway authenticates by token, authorizes by RBAC, counts, and writes an audit log at level Metadata")
	} else {
		r.report.note("the gateway authenticates by token, authorizes by RBAC and counts; it writes no audit log")
	}
	if r.dir, err = os.MkdirTemp("", "portico-load-"); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	defer os.RemoveAll(r.dir)
	defer func() {
		for _, f := range slices.Backward(r.all) {
			f.stop()
		}
	}()
	if err := r.start(ctx); err != nil {
		return err
	}
	failed := r.measure(ctx)
	if o.json {
		return errors.Join(failed, r.report.writeJSON(out))
	}
	r.report.print(out)
	return failed
}

// start starts everybody who takes part.
func (r *proxyRun) start(ctx context.Context) error {
	server, err := r.child(ctx, roleBackend, "direct", chainConfig{Object: int64(r.o.size)}, r.cores.load())
	if err != nil {
		return err
	}
	if err := r.serveFirst(server); err != nil {
		return fmt.Errorf("schedule the server: %w", err)
	}
	r.direct, r.backend = server, chainAddress{Address: server.address, Certificate: server.certificate}
	server.pid = 0 // nobody's way
	r.server = &http.Client{Transport: &http.Transport{TLSClientConfig: server.tls}}
	if r.bare, err = r.child(ctx, roleBare, "ReverseProxy", chainConfig{Upstream: r.backend}, r.cores.proxy()); err != nil {
		return err
	}
	for _, o := range others {
		if !r.o.others {
			break
		}
		f, err := o.start(ctx, r.dir, r.backend.Address, r.cores.proxy())
		if err != nil {
			r.say("%v", err)
			r.report.note("%v", err)
			continue
		}
		r.all = append(r.all, f)
	}
	if r.stack, err = startProxyStack(ctx, r.o, r.cores, r.unscheduled(r.cores.load())); err != nil {
		return err
	}
	r.gateway = &front{name: "gateway", pid: r.stack.procs["gateway"], unscheduled: true, stop: func() {
		if err := r.stack.end(); err != nil {
			r.say("%v", err)
		}
	}}
	r.all = append(r.all, r.gateway)
	r.say("started an installation in %s", r.stack.dir)
	if r.gateway.address, r.gateway.tls, err = r.stack.endpoint(); err != nil {
		return err
	}
	if r.token, err = r.stack.admit(ctx, r.backend); err != nil {
		return err
	}
	return r.stack.register(ctx, fewGroups, r.backend)
}

// child starts a process of this program that serves.
func (r *proxyRun) child(ctx context.Context, role, name string, cfg chainConfig, before []string) (*front, error) {
	c, err := startChainChild(context.WithoutCancel(ctx), role, cfg, before...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	f := &front{name: name, address: c.at.Address, certificate: c.at.Certificate, pid: c.cmd.Process.Pid, stop: c.stop}
	r.all = append(r.all, f)
	f.tls, err = c.at.tls()
	return f, err
}

// measure runs the parts. One that fails is reported, and the next one is run.
func (r *proxyRun) measure(ctx context.Context) error {
	var failures []error
	for _, part := range []struct {
		name string
		run  func(ctx context.Context) error
	}{{partRate, r.rates}, {partLatency, r.latencies}, {partWatches, r.idleWatches}, {partGroups, r.manyGroups}} {
		if !slices.Contains(r.o.only, part.name) || ctx.Err() != nil {
			continue
		}
		if err := part.run(ctx); err != nil {
			err = fmt.Errorf("%s: %w", part.name, err)
			r.say("failed: %v", err)
			failures = append(failures, err)
		}
	}
	return errors.Join(append(failures, context.Cause(ctx))...)
}
