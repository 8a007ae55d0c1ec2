package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objectsOptions are the flags of "bench objects".
type objectsOptions struct {
	costsOptions
	small int // objects of the resource that the large one is compared with
}

// newObjectsCommand returns the command that measures an installation with very many objects.
func newObjectsCommand() *cobra.Command {
	o := objectsOptions{small: 10000, costsOptions: costsOptions{options: options{
		workers: 8, connections: 8, rounds: 5, objects: 1000000, size: 300, time: 3 * time.Second, rest: 10 * time.Second, gets: 300, limit: 30 * time.Minute,
	}}}
	var heaps string
	cmd := &cobra.Command{
		Use:   "objects --portico PROGRAM",
		Short: "Measure an installation with a million small custom resources",
		Long: "Put custom resources of 300 bytes into the etcd of a new installation, and measure memory for each object, lists by pages,\n" +
			"selective lists, GET, create and watch beside a small resource, watches from old revisions, and restarts of the CRD server\n" +
			"and of everything. Each figure is printed with its bar.",
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.portico == "" || o.small < 1000 || o.objects < o.small || o.objects > 4000000 || o.rest < time.Second {
				return errors.New("objects needs --portico, at least 1000 of --small, from that to 4000000 --objects, and --rest of at least 1s")
			}
			o.profile = "on" // the heap is read
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.limit, fmt.Errorf("not finished within --limit=%v", o.limit))
			defer cancel()
			return measureObjects(ctx, &o, heaps, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.portico, "portico", "", "`program` to start a new installation with, in a temporary folder")
	fs.IntVar(&o.objects, "objects", o.objects, "number of objects")
	fs.IntVar(&o.small, "small", o.small, "number of objects of the resource to compare with")
	fs.DurationVar(&o.rest, "rest", o.rest, "idle time before each reading of memory")
	fs.StringVar(&heaps, "heaps", "", "`folder` for heap profiles of the CRD and core servers and the gateway, after a restart")
	fs.DurationVar(&o.limit, "limit", o.limit, "time limit of the run, without stopping the installation")
	return cmd
}

// manyObjects is one run of "bench objects".
type manyObjects struct {
	*costs
	o            *objectsOptions
	heaps        string
	large, small *items
	missed       int    // bars
	old          string // a resourceVersion from before the large resource was filled
	// The memory without the objects of the large resource: live and anonymous.
	without          use
	withoutAnonymous map[string]int64
}

func measureObjects(ctx context.Context, o *objectsOptions, heaps string, out, errOut io.Writer) (err error) {
	r, stop, err := startRunner(ctx, &o.options, "objects", errOut)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	m := &manyObjects{
		costs: &costs{runner: r, o: &o.costsOptions, out: out}, o: o, heaps: heaps,
		large: &items{group: "large." + r.group, n: o.objects}, small: &items{group: "small." + r.group, n: o.small},
	}
	fmt.Fprint(out, "| figure | value | bar | |\n|---|---|---|---|\n")
	for _, step := range []func(context.Context) error{
		m.setUp, m.fillAll, m.pages, m.selected, m.medians, m.restartServer, m.oldWatches, m.restartAll,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if m.missed > 0 {
		return fmt.Errorf("%d bars are missed", m.missed)
	}
	return nil
}

// figure prints a figure. good is whether it reaches its bar; without a bar it has none to reach.
func (m *manyObjects) figure(what, value, bar string, good bool) {
	verdict := ""
	switch {
	case bar != "" && good:
		verdict = "ok"
	case bar != "":
		verdict = "missed"
		m.missed++
	}
	fmt.Fprintf(m.out, "| %s | %s | %s | %s |\n", what, value, bar, verdict)
}

// items is a resource of small objects in itemNamespaces namespaces.
type items struct {
	group string
	n     int
}

const (
	itemNamespaces = 10
	// itemShare: a label has one of so many values, and so has the selectable field. Every second object has the label.
	itemShare = 1000
	// itemBytes is the size of an object as it is stored.
	itemBytes = 300
)

func itemNamespace(i int) string { return fmt.Sprint("items-", i%itemNamespaces) }

func (t *items) all() string { return "/apis/" + t.group + "/v1/items" }
func (t *items) list(i int) string {
	return "/apis/" + t.group + "/v1/namespaces/" + itemNamespace(i) + "/items"
}
func (t *items) path(i int) string { return t.list(i) + "/" + objectName(i) }
func (t *items) key(i int) string  { return t.keys() + itemNamespace(i) + "/" + objectName(i) }
func (t *items) keys() string      { return "/registry/" + t.group + "/items/" }

// body returns an object as a client sends it, or with stored set as it is stored, in itemBytes bytes.
func (t *items) body(i int, stored bool) []byte {
	b := fmt.Appendf(make([]byte, 0, itemBytes), `{"apiVersion":"%s/v1","kind":"Item","metadata":{`, t.group)
	if stored {
		b = append(b, `"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,`...)
	}
	if i%2 == 0 {
		b = fmt.Appendf(b, `"labels":{"shard":"s%d"},`, i%itemShare)
	}
	b = fmt.Appendf(b, `"name":"%s","namespace":"%s"`, objectName(i), itemNamespace(i))
	if stored {
		b = fmt.Appendf(b, `,"uid":"00000000-0000-4000-8000-%012x"`, i)
	}
	b = fmt.Appendf(b, `},"spec":{"color":"c%d","text":"`, i/itemNamespaces%itemShare)
	const end = `"}}`
	b = append(b, bytes.Repeat([]byte("v"), max(itemBytes-len(b)-len(end), 0))...)
	return append(b, end...)
}

// definition returns the definition of the resource.
func (t *items) definition() ([]byte, error) {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"color": text, "text": text}}
	return json.Marshal(&apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "items." + t.group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: t.group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "items", Kind: "Item"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
				}},
			}},
		},
	})
}

// setUp creates the namespaces and the definitions.
func (m *manyObjects) setUp(ctx context.Context) error {
	for i := range itemNamespaces {
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%s"}}`, itemNamespace(i))
		if _, err := m.target.discard(ctx, 0, request{method: "POST", path: "/api/v1/namespaces", contentType: jsonType, body: body}); err != nil {
			return fmt.Errorf("create namespace: %w", err)
		}
	}
	for _, t := range []*items{m.small, m.large} {
		body, err := t.definition()
		if err != nil {
			return fmt.Errorf("encode definition: %w", err)
		}
		if err := m.createDefinition(ctx, 0, t.group, body); err != nil {
			return err
		}
		if err := retryWhileStarting(ctx, pollSlow, func() error {
			_, err := m.target.discard(ctx, 0, request{path: t.all()})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// fillAll puts the objects into etcd, while the servers watch, and measures their memory.
func (m *manyObjects) fillAll(ctx context.Context) (err error) {
	if _, err = m.fill(ctx, m.small); err != nil {
		return err
	}
	if m.without, err = m.collect(ctx); err != nil {
		return err
	}
	page, err := m.page(ctx, m.small, "?limit=1")
	if err != nil {
		return err
	}
	m.old = page.revision
	m.withoutAnonymous = m.procs.memory()
	began, spent := time.Now(), m.procs.cpu()
	took, err := m.fill(ctx, m.large)
	if err != nil {
		return err
	}
	used := m.procs.cpu().since(spent)
	m.figure(fmt.Sprintf("put %d objects of %d bytes into etcd", m.large.n, itemBytes), seconds(took), "", true)
	m.figure("until the CRD server and the garbage collector's graph have them", seconds(time.Since(began)), "", true)
	m.figure("processor time of the CRD server and of the core server for that", seconds(used["crd"])+", "+seconds(used["core"]), "", true)
	return m.memory(ctx, "after that")
}

// fill puts the objects of a resource into etcd, and waits until the CRD server and the core server have them.
func (m *manyObjects) fill(ctx context.Context, t *items) (time.Duration, error) {
	n := (t.n + fillKeys - 1) / fillKeys
	var done atomic.Int64
	stop := m.progress.follow("transactions", &done, n)
	filled, err := drive(ctx, m.o.workers, bound{n, m.o.limit}, &done, func(ctx context.Context, _, at int) (int64, error) {
		var ops []clientv3.Op
		for i := at * fillKeys; i < min((at+1)*fillKeys, t.n); i++ {
			ops = append(ops, clientv3.OpPut(t.key(i), string(t.body(i, true))))
		}
		_, err := m.etcd.client.Txn(ctx).Then(ops...).Commit()
		return 0, err
	})
	stop()
	if err != nil {
		return 0, fmt.Errorf("fill etcd: %w", err)
	}
	return filled.took, until(ctx, func() error { return m.complete(ctx) })
}

// complete returns nil once the CRD server and the garbage collector have what etcd has.
func (m *manyObjects) complete(ctx context.Context) error {
	stored := 0
	for _, t := range []*items{m.small, m.large} {
		all, err := m.etcd.client.Get(ctx, t.keys(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		page, err := m.page(ctx, t, "?limit=1&resourceVersion=0")
		if err != nil {
			return err
		}
		if all.Count > 0 && int64(len(page.names))+page.remaining < all.Count {
			return errNotYet
		}
		stored += int(all.Count)
	}
	if graph, err := m.graph(ctx); err != nil || graph < float64(stored) {
		return errors.Join(errNotYet, err)
	}
	return nil
}

var graphSize = regexp.MustCompile(`(?m)^portico_garbage_collector_objects (\S+)`)

// graph returns the number of objects in the garbage collector's graph.
func (m *manyObjects) graph(ctx context.Context) (float64, error) {
	text, err := m.ask(ctx, "core", "/metrics")
	if err != nil {
		return 0, err
	}
	found := graphSize.FindSubmatch(text)
	if found == nil {
		return 0, nil
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// crdMemoryBar is the bar of the memory of an object in the CRD server, in bytes.
const crdMemoryBar = 1200

// memory prints by how much the memory of each process has grown for each object of the large resource.
func (m *manyObjects) memory(ctx context.Context, when string) error {
	now, err := m.collect(ctx)
	if err != nil {
		return err
	}
	m.now = now
	n := float64(m.large.n)
	anonymous := m.procs.memory()
	for _, name := range []string{"crd", "core", "gateway", "etcd"} {
		bar, good := "", true
		live, resident := (now.memory[name]-m.without.memory[name])/n, float64(anonymous[name]-m.withoutAnonymous[name])/n
		if name == "crd" {
			bar, good = fmt.Sprintf("%d B", crdMemoryBar), resident < crdMemoryBar && live < crdMemoryBar
		}
		value := fmt.Sprintf("%.0f B live, %.0f B anonymous (%d MB)", live, resident, anonymous[name]>>20)
		if name == "etcd" {
			value = fmt.Sprintf("%.0f B anonymous (%d MB), %.0f B of the file", resident, anonymous[name]>>20, (now.file-m.without.file)/n)
		}
		m.figure(fmt.Sprintf("memory of an object, %s, %s", name, when), value, bar, good)
	}
	return m.writeHeaps(ctx)
}

// writeHeaps writes heap profiles into the folder of --heaps.
func (m *manyObjects) writeHeaps(ctx context.Context) error {
	if m.heaps == "" {
		return nil
	}
	for _, name := range []string{"crd", "core", "gateway"} {
		profile, err := m.ask(ctx, name, "/debug/pprof/heap")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(m.heaps, name+".pprof"), profile, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
