package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// costsOptions are the flags of "bench costs".
type costsOptions struct {
	options
	servers int // registered REST servers
}

// newCostsCommand returns the command that measures what things cost each process.
func newCostsCommand() *cobra.Command {
	// Each connection has some thirty watches, as that of a controller.
	o := costsOptions{servers: 100, options: options{
		workers: 16, connections: 64, rounds: 1, objects: 10000, size: 3700, gets: 10000, lists: 20, watchers: 2000, updates: 20, definitions: 200,
		time: time.Minute, rest: 10 * time.Second, limit: 10 * time.Minute, profile: "on",
	}}
	cmd := &cobra.Command{
		Use:   "costs --portico PROGRAM",
		Short: "Measure what an object, a watch, a definition, a server and a request cost each process",
		Long: "Measure the memory and processor time of each process, and the file of etcd, in a new installation, and write the table\n" +
			"of docs/scaling.md. Memory is that of live objects and stacks after a collection of garbage; anonymous\n" +
			"memory also has room for garbage. Other work on the machine changes processor time somewhat, and memory hardly.",
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.portico == "" || o.objects < 1 || o.watchers < 1 || o.definitions < 1 || o.servers < 1 || o.rest < time.Second {
				return errors.New("costs needs --portico, at least 1 of --objects, --watchers, --definitions and --servers, and --rest of at least 1s")
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.limit, fmt.Errorf("not finished within --limit=%v", o.limit))
			defer cancel()
			return measureCosts(ctx, &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.portico, "portico", "", "`program` to start a new installation with, in a temporary folder")
	fs.IntVar(&o.objects, "objects", o.objects, "number of objects of each kind")
	fs.IntVar(&o.gets, "gets", o.gets, "number of GETs of each kind")
	fs.IntVar(&o.watchers, "watchers", o.watchers, "number of watches")
	fs.IntVar(&o.definitions, "definitions", o.definitions, "number of CustomResourceDefinitions")
	fs.IntVar(&o.servers, "servers", o.servers, "number of registered servers")
	fs.DurationVar(&o.rest, "rest", o.rest, "idle time before each reading of memory")
	fs.DurationVar(&o.limit, "limit", o.limit, "time limit of the run, without stopping the installation")
	return cmd
}

// costs is one run. A row is printed as soon as it is measured.
type costs struct {
	*runner
	o   *costsOptions
	out io.Writer
	now use // the last reading
}

// use is the memory of live objects and stacks and the size of the data in etcd's file, in bytes, and the processor time of the
// processes while they had nothing to do for --rest.
type use struct {
	memory  map[string]float64
	file    float64
	resting cpuTimes
}

func measureCosts(ctx context.Context, o *costsOptions, out, errOut io.Writer) (err error) {
	r, stop, err := startRunner(ctx, &o.options, "costs", errOut)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c := &costs{runner: r, o: o, out: out}
	if err := c.setUp(ctx); err != nil {
		return err
	}
	fmt.Fprint(out, "| | gateway | core server | CRD server | etcd | measured with |\n|---|---|---|---|---|---|\n")
	small := customResources("g0."+r.group, r.namespace)
	small.tail = func(filling int) string { return `,"image":"` + strings.Repeat("v", filling) + `"}` }
	customs, maps, pods := customResources(r.group, r.namespace), configMaps(r.namespace), pods(r.namespace)
	for _, step := range []func() error{
		func() error { return c.idle(ctx) },
		func() error { return c.connections(ctx) },
		func() error { return c.definitions(ctx) },
		func() error { return c.objects(ctx, customs, o.size) },
		func() error { return c.gets(ctx, customs) },
		func() error { return c.lists(ctx, customs) },
		func() error { return c.watches(ctx, customs) },
		func() error { return c.objects(ctx, small, 700) },
		func() error { return c.objects(ctx, maps, o.size) },
		func() error { return c.gets(ctx, maps) },
		func() error { return c.lists(ctx, maps) },
		func() error { return c.objects(ctx, pods, 6000) },
		func() error { return c.lists(ctx, pods) },
		func() error { return c.registered(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// collect reads what lives after two collections of garbage, of which the second frees what finalizers and pools held.
func (c *costs) collect(ctx context.Context) (use, error) {
	before := c.procs.cpu()
	select {
	case <-ctx.Done():
		return use{}, context.Cause(ctx)
	case <-time.After(c.o.rest):
	}
	now := use{memory: map[string]float64{}, resting: c.procs.cpu().since(before)}
	for _, name := range []string{"gateway", "core", "crd"} {
		var profile []byte
		for range 2 {
			var err error
			if profile, err = c.ask(ctx, name, "/debug/pprof/heap?gc=1&debug=1"); err != nil {
				return use{}, err
			}
		}
		for _, m := range inUse.FindAllSubmatch(profile, -1) {
			bytes, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil {
				return use{}, fmt.Errorf("read profile of %s: %w", name, err)
			}
			now.memory[name] += bytes
		}
	}
	status, err := c.etcd.client.Status(ctx, c.o.etcd)
	if err != nil {
		return use{}, fmt.Errorf("read status of etcd: %w", err)
	}
	now.file = float64(status.DbSizeInUse)
	return now, nil
}

// inUse finds the bytes of live objects and of stacks in a profile. Anonymous memory also has room for garbage, which
// depends on what a process did before.
var inUse = regexp.MustCompile(`(?m)^# (?:HeapAlloc|Stack) = (\d+)`)

// ask sends a GET to a process.
func (c *costs) ask(ctx context.Context, name, path string) ([]byte, error) {
	if name == "gateway" {
		return c.target.read(ctx, 0, request{path: path, accept: "*/*"})
	}
	res, err := getUnix(ctx, filepath.Join(c.o.dataDir, "run", name+".sock"), path)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

// row prints a row. Processes without a cell get a dash.
func (c *costs) row(what string, cells map[string]string, how string, args ...any) {
	line := "| " + what
	for _, name := range []string{"gateway", "core", "crd", "etcd"} {
		cell := cells[name]
		if cell == "" {
			cell = "–"
		}
		line += " | " + cell
	}
	fmt.Fprintf(c.out, "%s | %s |\n", line, fmt.Sprintf(how, args...))
}

// noise is the change of a process's memory, in bytes, below which a row has none.
const noise = 1 << 19

// grown prints by how much memory and etcd's file have grown for each of n things since the last reading.
func (c *costs) grown(ctx context.Context, what string, n int, how string, args ...any) error {
	now, err := c.collect(ctx)
	if err != nil {
		return err
	}
	cells := map[string]string{}
	for _, name := range []string{"gateway", "core", "crd"} {
		if grown := now.memory[name] - c.now.memory[name]; grown > noise {
			cells[name] = twoDigits(grown/1e3/float64(n)) + " KB"
		}
	}
	if grown := now.file - c.now.file; grown > noise {
		cells["etcd"] = twoDigits(grown/1e3/float64(n)) + " KB of the file"
	}
	c.row(what, cells, how, args...)
	c.now = now
	return nil
}

// worked prints the processor time of each of n operations, without processes that did less than a fiftieth of the work.
func (c *costs) worked(what string, n float64, spent cpuTimes, how string, args ...any) {
	delete(spent, self)
	var sum time.Duration
	for _, d := range spent {
		sum += d
	}
	cells := map[string]string{}
	for name, d := range spent {
		if d > sum/50 {
			cells[name] = twoDigits(float64(d.Nanoseconds())/1e3/n) + " µs"
		}
	}
	c.row(what, cells, how, args...)
}

func twoDigits(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// idle measures the installation without load.
func (c *costs) idle(ctx context.Context) (err error) {
	if c.now, err = c.collect(ctx); err != nil {
		return err
	}
	cells := map[string]string{}
	for name, bytes := range c.procs.memory() {
		cells[name] = fmt.Sprintf("%.0f MB", float64(bytes)/1e6)
	}
	c.row("nothing: an idle installation", cells, "anonymous memory")
	c.worked("the same, processor in a second", c.o.rest.Seconds(), c.now.resting, "%v", c.o.rest)
	return nil
}

// connections measures TLS connections of HTTP/2 that have had a request, a tenth of them opened at a time.
func (c *costs) connections(ctx context.Context) error {
	o, n := c.o.options, 500
	o.connections = n
	idle, err := openTarget(ctx, &o)
	if err != nil {
		return err
	}
	defer idle.close()
	if _, err := drive(ctx, n/10, bound{n, c.o.limit}, nil, func(ctx context.Context, _, i int) (int64, error) {
		return idle.discard(ctx, i, request{path: "/version"})
	}); err != nil {
		return err
	}
	if err := c.grown(ctx, "idle connection", n, "%d", n); err != nil {
		return err
	}
	idle.close()
	c.now, err = c.collect(ctx)
	return err
}

func (c *costs) definitions(ctx context.Context) error {
	n := c.o.definitions
	if _, err := c.define(ctx, 0, n, c.o.workers); err != nil {
		return err
	}
	return c.grown(ctx, "definition with a schema of 20 fields, without objects", n, "%d", n)
}

// objects creates objects of size bytes.
func (c *costs) objects(ctx context.Context, s *subject, size int) error {
	bytes, err := s.calibrate(ctx, c.target, size)
	if err != nil {
		return err
	}
	name, n := s.singular(), c.o.objects
	before := c.procs.cpu()
	got, err := drive(ctx, c.o.workers, bound{n, c.o.limit}, nil, func(ctx context.Context, worker, i int) (int64, error) {
		return c.target.discard(ctx, worker, request{method: "POST", path: s.list(), contentType: jsonType, body: s.body(i, 0, "")})
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", s.name, err)
	}
	kilobytes := twoDigits(float64(bytes) / 1e3)
	c.worked(fmt.Sprintf("create a %s of %s KB, processor", name, kilobytes), float64(got.ops), c.procs.cpu().since(before), "%d, %d at a time", n, c.o.workers)
	return c.grown(ctx, fmt.Sprintf("%s of %s KB as JSON", name, kilobytes), n, "%d", n)
}

// gets measures GETs of the objects.
func (c *costs) gets(ctx context.Context, s *subject) error {
	for _, get := range []struct{ what, query string }{{"GET of the latest state", ""}, {"GET with resourceVersion 0", "?resourceVersion=0"}} {
		before := c.procs.cpu()
		got, err := drive(ctx, c.o.workers, bound{c.o.gets, c.o.time}, nil, func(ctx context.Context, worker, i int) (int64, error) {
			return c.target.discard(ctx, worker, request{path: s.objectPath(i*7919%c.o.objects) + get.query})
		})
		if err != nil {
			return fmt.Errorf("get %s: %w", s.name, err)
		}
		c.worked(fmt.Sprintf("%s, %s, processor", get.what, s.singular()), float64(got.ops), c.procs.cpu().since(before), "%d", got.ops)
	}
	return nil
}

// lists measures LISTs of all objects, and what stays in memory after them.
func (c *costs) lists(ctx context.Context, s *subject) error {
	n := c.o.objects
	before := c.procs.cpu()
	got, err := drive(ctx, 2, bound{c.o.lists, c.o.time}, nil, func(ctx context.Context, worker, _ int) (int64, error) {
		return c.target.discard(ctx, worker, request{path: s.list()})
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", s.name, err)
	}
	c.worked(fmt.Sprintf("item of a LIST, %s, processor", s.singular()), float64(got.ops)*float64(n), c.procs.cpu().since(before), "%d LISTs of %d", got.ops, n)
	return c.grown(ctx, fmt.Sprintf("%s that LISTs have read, in addition", s.singular()), n, "%d", n)
}

// watches measures idle watches of the objects, and then changes that are sent to all of them.
func (c *costs) watches(ctx context.Context, s *subject) error {
	now, err := s.listNow(ctx, c.target, c.o.objects)
	if err != nil {
		return err
	}
	if c.now, err = c.collect(ctx); err != nil {
		return err
	}
	// One request opens each connection: the gateway takes only some hundred at a time without a user.
	if _, err = drive(ctx, c.o.workers, bound{c.o.connections, c.o.limit}, nil, func(ctx context.Context, _, i int) (int64, error) {
		return c.target.discard(ctx, i, request{path: s.objectPath(0)})
	}); err != nil {
		return err
	}
	ws, err := openWatchers(ctx, c.target, watchPath(s, now.revision), c.o.watchers, nil)
	if err != nil {
		return err
	}
	defer ws.close()
	if err := c.grown(ctx, "idle watch", c.o.watchers, "%d on %d connections", c.o.watchers, c.o.connections); err != nil {
		return err
	}
	before, version := c.procs.cpu(), now.versions[0]
	for i := range c.o.updates {
		answer, err := c.target.read(ctx, 0, request{method: "PUT", path: s.objectPath(0), contentType: jsonType, body: s.body(0, int64(i)+1, version)})
		if err != nil {
			return err
		}
		version = versionIn(answer)
	}
	if err := ws.wait(int64(c.o.updates), lostAfter); err != nil {
		return err
	}
	c.worked("event to one watch, processor", float64(ws.sum()), c.procs.cpu().since(before), "%d changes, %d watches", c.o.updates, c.o.watchers)
	ws.close()
	c.now, err = c.collect(ctx)
	return err
}

// registered measures REST servers with a document of one resource, which are one process.
func (c *costs) registered(ctx context.Context) error {
	server, err := startChild(ctx, roleStaticServer, childConfig{})
	if err != nil {
		return err
	}
	defer server.stop()
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.at.Certificate}))
	n := c.o.servers
	before := c.procs.cpu()
	_, err = drive(ctx, 1, bound{n, c.o.limit}, nil, func(ctx context.Context, worker, i int) (int64, error) {
		group := fmt.Sprintf("rest%d.bench.example.com", i)
		body, err := json.Marshal(object{"metadata": object{"name": fmt.Sprint("rest", i)}, "spec": object{
			"endpoints": []object{{"url": "https://" + server.at.Address}}, "tls": object{"caBundle": bundle}, "rest": object{"group": group, "version": "v1"},
		}})
		if err != nil {
			return 0, err
		}
		if _, err := c.target.discard(ctx, worker, request{method: "POST", path: "/apis/gateway.portico.dev/v1alpha1/backends", contentType: jsonType, body: body}); err != nil {
			return 0, err
		}
		return 0, retryWhileStarting(ctx, pollSlow, func() error {
			_, err := c.target.discard(ctx, worker, request{path: "/apis/" + group + "/v1/widgets"})
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	c.worked("registration of a server, processor", float64(n), c.procs.cpu().since(before), "%d, one at a time", n)
	idle := c.now.resting
	if err := c.grown(ctx, "registered REST server with a document of one resource", n, "%d", n); err != nil {
		return err
	}
	for name := range c.now.resting {
		c.now.resting[name] -= idle[name]
	}
	c.worked("its checks, processor in a second", float64(n)*c.o.rest.Seconds(), c.now.resting, "%d in %v", n, c.o.rest)
	return nil
}
