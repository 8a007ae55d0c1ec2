package upstream

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes/scheme"

	"portico/backends/core/kinds"
	"portico/internal/testing/kindtest"
	porticorest "portico/resource/rest"
)

var (
	// record writes the outcomes that the tests of package kinds replay.
	record = flag.Bool("record", false, "write the outcomes of kube-apiserver to testdata/outcomes of package kinds")
	// differences names a folder for one file per resource with all differences.
	differences = flag.String("differences", "", "write all differences to files of this folder")
)

// testdata is that of package kinds.
var testdata = filepath.Join("..", "..", "backends", "core", "kinds", "testdata")

// TestWritesHaveTheOutcomeOfKubeAPIServer applies writes to every resource that kube-apiserver
// serves by default, with its rules and with Portico's. The bodies are the objects of
// testdata/objects, which are valid, and those with one field changed. The outcomes have the
// same errors (field, reason and message) or the same object to store.
func TestWritesHaveTheOutcomeOfKubeAPIServer(t *testing.T) {
	all, rows := strategies(), allRows()
	for gvr := range all {
		t.Run(kindtest.FileName(gvr), func(t *testing.T) {
			t.Parallel()
			c, row := newComparison(t, all, rows, gvr)
			ours := kindtest.Of(row, gvr.Version, c.subresource)
			if ours == nil {
				t.Fatal("there is no subresource")
			}
			c.ours = func(w kindtest.Case) kindtest.Outcome { return w.Outcome(ours) }
			c.run()
		})
	}
}

// TestMetadataOfWrites compares writes with other names, annotations, labels, finalizers and
// owners, and records all their causes
// and warnings.
func TestMetadataOfWrites(t *testing.T) {
	t.Parallel()
	all, rows, recorded := strategies(), allRows(), kindtest.Recorded{}
	for gvr := range all {
		if strings.Contains(gvr.Resource, "/") {
			continue
		}
		t.Run(kindtest.FileName(gvr), func(t *testing.T) {
			c, row := newComparison(t, all, rows, gvr)
			c.theirs.metadata = true
			server := kindtest.Serve(row, gvr.Version)
			c.ours = func(w kindtest.Case) kindtest.Outcome { return server.MetadataOutcome(t, w) }
			kindtest.MetadataCases(c.objects, func(w kindtest.Case) {
				c.compare(w)
				recorded.Add(w.Name, kindtest.FileName(gvr), w.Outcome(c.theirs))
			})
			c.report("_metadata")
		})
	}
	if *record {
		recorded.Write(t, filepath.Join(testdata, "metadata.txt"))
	}
}

// allRows returns the rows of Portico's resources.
func allRows() map[schema.GroupResource]*porticorest.Kind {
	rows := map[schema.GroupResource]*porticorest.Kind{}
	for _, k := range kinds.All(kinds.Config{Warn: kindtest.Warn, Permissions: kinds.Permissions{Authorize: allow}}) {
		rows[k.GroupResource()] = k
	}
	return rows
}

// comparison compares the rules of one resource or subresource.
type comparison struct {
	t           *testing.T
	gvr         schema.GroupVersionResource
	gvk         schema.GroupVersionKind
	subresource string
	ours        func(kindtest.Case) kindtest.Outcome
	theirs      theirs
	objects     []map[string]any

	cases       int
	differences []string
	recorded    map[string]string // causes to the first case with them
}

// newComparison returns the comparison of a resource or subresource without its ours, and the
// row of the resource.
func newComparison(t *testing.T, all map[schema.GroupVersionResource]rest.RESTUpdateStrategy, rows map[schema.GroupResource]*porticorest.Kind, gvr schema.GroupVersionResource) (*comparison, *porticorest.Kind) {
	t.Helper()
	resource, sub, _ := strings.Cut(gvr.Resource, "/")
	main := gvr.GroupVersion().WithResource(resource)
	row := rows[main.GroupResource()]
	if row == nil {
		t.Fatal("there is no row")
	}
	c := &comparison{t: t, gvr: gvr, gvk: row.GVK(gvr.Version), subresource: sub, recorded: map[string]string{}}
	c.theirs = theirs{gvk: c.gvk, gvr: main, subresource: sub, main: all[main].(rest.RESTCreateStrategy), strategy: all[gvr]}
	if c.objects = kindtest.Objects(t, filepath.Join(testdata, "objects"), main); len(c.objects) == 0 {
		t.Fatal("testdata has no object")
	}
	return c, row
}

func (c *comparison) run() {
	sample, err := scheme.Scheme.New(c.gvk)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, o := range c.objects {
		data := kindtest.Encoded(o)
		if got := c.theirs.Create(data); c.subresource == "" && (got.Undecodable || got.Refused) {
			c.t.Fatalf("kube-apiserver refuses an object of testdata: %s: %v", data, got.Causes)
		}
	}
	kindtest.Cases(c.t, c.objects, reflect.TypeOf(sample).Elem(), c.subresource != "", c.compare)
	if filled := c.filled(); c.subresource == "" && filled != nil {
		c.compare(kindtest.Case{Name: "create filled", Body: func() []byte { return filled }})
	}
	c.report("")
	if *record {
		c.write()
	}
}

// leftOut are the changes that are not compared.
var leftOut = map[string]*regexp.Regexp{
	// The errors of two claims have indexes in the order of a map.
	"statefulsets": regexp.MustCompile(`: spec\.volumeClaimTemplates\[1\]`),
}

// excused are the parts of messages that may differ, with the reason.
var excused = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?s)(?:Invalid|Duplicate|Unsupported) value: [{\[].*[}\]]`): "an object is in the JSON of the internal types",
	regexp.MustCompile(`(?s)\n@@ .*`):                                               "a difference is in the JSON of the internal types",
}

// messages returns causes without the parts that may differ.
func messages(causes []kindtest.Cause) []kindtest.Cause {
	out := slices.Clone(causes)
	for i := range out {
		for part := range excused {
			out[i].Message = part.ReplaceAllString(out[i].Message, "")
		}
	}
	return kindtest.Sorted(out)
}

func (c *comparison) compare(w kindtest.Case) {
	if out := leftOut[c.gvr.Resource]; out != nil && out.MatchString(w.Name) {
		return
	}
	c.cases++
	var want, got kindtest.Outcome
	if caught(func() { want = w.Outcome(c.theirs) }) != nil {
		return // kube-apiserver panics
	}
	if err := caught(func() { got = c.ours(w) }); err != nil {
		c.differences = append(c.differences, fmt.Sprintf("%s\n\tPANIC: %v", w.Name, err))
		return
	}
	switch difference := differs(want, got); {
	case difference != "":
		c.differences = append(c.differences, w.Name+"\n"+difference)
		return // it is not recorded: go test shows what holds
	case !slices.Equal(messages(want.Causes), messages(got.Causes)):
		c.differences = append(c.differences, w.Name+" (messages only)\n"+lines(want.Causes, got.Causes, true))
	}
	if len(want.Causes) > 0 {
		c.note(w.Name, want.Causes)
	}
}

// inPodSpec matches the changes inside the fields of a pod template's spec.
var inPodSpec = regexp.MustCompile(`\.template\.spec\.\w+[.\[]`)

// note keeps the first case, in alphabetical order, of each distinct list of fields and
// reasons. Those of pod templates are kept for PodTemplate alone.
func (c *comparison) note(name string, causes []kindtest.Cause) {
	if c.gvk.Kind != "PodTemplate" && inPodSpec.MatchString(name) {
		return
	}
	var key strings.Builder
	for _, cause := range causes {
		fmt.Fprintln(&key, cause.Field, cause.Reason)
	}
	if first, ok := c.recorded[key.String()]; !ok || name < first {
		c.recorded[key.String()] = name
	}
}

func caught(f func()) (err any) {
	defer func() { err = recover() }()
	f()
	return nil
}

// differs says in what two outcomes differ; messages do not count.
func differs(want, got kindtest.Outcome) string {
	if want.Undecodable != got.Undecodable {
		return fmt.Sprintf("\tundecodable: %v, not %v", got.Undecodable, want.Undecodable)
	}
	if d := lines(want.Causes, got.Causes, false); d != "" {
		return d
	}
	if want.Refused || got.Refused {
		return ""
	}
	if !slices.Equal(want.Warnings, got.Warnings) {
		return fmt.Sprintf("\twarnings: %q, not %q\n", got.Warnings, want.Warnings) + objectLines("", want.Object, got.Object)
	}
	return objectLines("", want.Object, got.Object)
}

// lines lists the causes that only one server has: "-" those missing, "+" those too many.
func lines(want, got []kindtest.Cause, messages bool) string {
	var b strings.Builder
	list := func(sign string, some, others []kindtest.Cause) {
		for _, c := range some {
			same := func(o kindtest.Cause) bool {
				return o.Field == c.Field && o.Reason == c.Reason && (!messages || o.Message == c.Message)
			}
			if !slices.ContainsFunc(others, same) {
				fmt.Fprintf(&b, "\t%s %s\n", sign, c)
			}
		}
	}
	list("-", want, got)
	list("+", got, want)
	return strings.TrimSuffix(b.String(), "\n")
}

// objectLines lists the fields in which stored objects differ.
func objectLines(path string, want, got any) string {
	w, isMap := want.(map[string]any)
	g, isMap2 := got.(map[string]any)
	if !isMap || !isMap2 {
		if reflect.DeepEqual(want, got) {
			return ""
		}
		return fmt.Sprintf("\t= %s: %s, not %s\n", strings.TrimPrefix(path, "."), kindtest.Encoded(got), kindtest.Encoded(want))
	}
	keys := map[string]bool{}
	for _, m := range []map[string]any{w, g} {
		for k := range m {
			keys[k] = true
		}
	}
	var b strings.Builder
	for k := range keys {
		b.WriteString(objectLines(path+"."+k, w[k], g[k]))
	}
	return b.String()
}

// report fails if anything differs. suffix is that of the file of differences.
func (c *comparison) report(suffix string) {
	slices.Sort(c.differences)
	if *differences != "" && len(c.differences) > 0 {
		file := filepath.Join(*differences, kindtest.FileName(c.gvr)+suffix+".txt")
		if err := os.WriteFile(file, []byte(strings.Join(c.differences, "\n")+"\n"), 0o644); err != nil {
			c.t.Error(err)
		}
	}
	if len(c.differences) == 0 {
		return
	}
	for _, d := range c.differences[:min(5, len(c.differences))] {
		c.t.Log(d)
	}
	c.t.Errorf("%d of %d writes differ", len(c.differences), c.cases)
}

// maxRecorded is how many lines are recorded before lists of causes that have nothing new are
// left out.
const maxRecorded = 2000

// index matches the index of an entry in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// chosen returns the names of the cases to record: one of each distinct list of causes, or if
// these are too many, of lists that have a cause which no shorter one has at any index.
func (c *comparison) chosen() map[string]bool {
	lists, total := slices.Collect(maps.Keys(c.recorded)), 0
	for _, list := range lists {
		total += 1 + strings.Count(list, "\n")
	}
	slices.SortFunc(lists, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "\n"), strings.Count(b, "\n")), cmp.Compare(c.recorded[a], c.recorded[b]))
	})
	names, known := map[string]bool{}, map[string]bool{}
	for _, list := range lists {
		for cause := range strings.Lines(index.ReplaceAllString(list, "[]")) {
			if total <= maxRecorded || !known[cause] {
				names[c.recorded[list]] = true
			}
			known[cause] = true
		}
	}
	return names
}

// write records the outcomes with errors: one case of each distinct list of causes.
func (c *comparison) write() {
	names := c.chosen()
	sample, err := scheme.Scheme.New(c.gvk)
	if err != nil {
		c.t.Fatal(err)
	}
	var all []string
	kindtest.Cases(c.t, c.objects, reflect.TypeOf(sample).Elem(), c.subresource != "", func(w kindtest.Case) {
		if !names[w.Name] {
			return
		}
		names[w.Name] = false
		text := w.Name + "\n"
		for _, cause := range w.Outcome(c.theirs).Causes {
			text += "\t" + cause.Field + ": " + cause.Reason + "\n"
		}
		all = append(all, text)
	})
	slices.Sort(all)
	file := filepath.Join(testdata, "outcomes", kindtest.FileName(c.gvr)+".txt")
	if err := os.WriteFile(file, []byte(strings.Join(all, "")), 0o644); err != nil {
		c.t.Error(err)
	}
}

// filled returns the object of the kind in the test data of module k8s.io/api, in which every
// field has a value; nil: there is none.
func (c *comparison) filled() []byte {
	group := c.gvk.Group
	if group == "" {
		group = "core"
	}
	name := group + "." + c.gvk.Version + "." + c.gvk.Kind + ".json"
	data, err := os.ReadFile(filepath.Join(kindtest.ModuleDir(c.t, "k8s.io/api"), "testdata", "HEAD", name))
	if err != nil || !json.Valid(data) {
		return nil
	}
	return data
}
