package fieldtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"portico/internal/testing/await"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Server is an API server.
type Server struct {
	URL    string
	Client *http.Client
	// Settle returns when requests after the write of a definition see it.
	Settle func(t testing.TB, name string)
}

// run is the state of a row on a server.
type run struct {
	*Row
	server *Server
	group  string
	kept   map[string]string
}

// Run does the steps of a row and compares their outcomes; with ours those of the CRD server where
// they differ from kube-apiserver's. Reads are repeated until they have the outcome: discovery and
// conditions follow a write.
func (r *Row) Run(t *testing.T, server *Server, ours bool) {
	r.do(t, server, func(step *Step, do func() Outcome) {
		want := step.Outcome
		if ours && step.Ours != nil {
			if want = *step.Ours; same(want, step.Outcome) || step.Differs == "" {
				t.Errorf("%s: ours does not differ, or the reason is missing", step.String())
			}
		}
		got := do()
		for end := time.Now().Add(await.Patience()); step.reads() && !same(got, want) && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
			got = do()
		}
		if !same(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", step.String(), asText(got), asText(want))
		}
	})
}

// Record does the steps of a row and sets their outcomes. wait is called before those that are Late.
func (r *Row) Record(t *testing.T, server *Server, wait func()) {
	r.do(t, server, func(step *Step, do func() Outcome) {
		if step.Late {
			wait()
		}
		step.Outcome = do()
	})
}

// do calls each for every step.
func (r *Row) do(t *testing.T, server *Server, each func(step *Step, do func() Outcome)) {
	t.Helper()
	c := &run{Row: r, server: server, group: r.Group(), kept: map[string]string{}}
	c.kept["group"] = c.group
	revisions := map[int]string{}
	if r.Schema != nil {
		revisions = c.prepareValues(t)
	}
	for i := range r.Steps {
		step := &r.Steps[i]
		each(step, func() Outcome {
			if r.Schema != nil {
				return c.value(t, step, i, revisions[i])
			}
			return c.request(t, step)
		})
	}
}

// reads reports whether the step changes nothing.
func (s *Step) reads() bool { return strings.HasPrefix(s.Send, "GET ") }

// String says what the step does.
func (s *Step) String() string {
	text := strings.TrimSpace(s.Send + " " + asText(s.Body))
	return cmp.Or(text, "x is "+string(s.New)) + " " + asText(s.Define) + asText(s.Change) + asText(s.Version) + asText(s.Schema)
}

func asText(v any) string {
	if raw, ok := v.(json.RawMessage); ok && raw == nil {
		return ""
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func same(a, b Outcome) bool { return reflect.DeepEqual(normal(a), normal(b)) }

func normal(o Outcome) any {
	var v any
	_ = json.Unmarshal([]byte(asText(o)), &v) // it was encoded
	return v
}

// basic is the definition that Define changes.
func (c *run) basic() string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.%s"},
		"spec":{"group":%q,"scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, c.group, c.group)
}

// merged returns a definition with the merge patches of a step.
func (c *run) merged(t *testing.T, definition []byte, whole, version, schema json.RawMessage) []byte {
	t.Helper()
	var object map[string]any
	merge := func(to, patch []byte) []byte {
		out, err := jsonpatch.MergePatch(to, patch)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if whole != nil {
		definition = merge(definition, []byte(c.expand(string(whole))))
	}
	if version == nil && schema == nil {
		return definition
	}
	if err := json.Unmarshal(definition, &object); err != nil {
		t.Fatal(err)
	}
	first := object["spec"].(map[string]any)["versions"].([]any)
	changed := first[0].(map[string]any)
	if schema != nil {
		changed["schema"] = map[string]any{"openAPIV3Schema": json.RawMessage(schema)}
	}
	if version != nil {
		data := merge([]byte(asText(changed)), []byte(c.expand(string(version))))
		changed = nil
		if err := json.Unmarshal(data, &changed); err != nil {
			t.Fatal(err)
		}
	}
	first[0] = changed
	return []byte(asText(object))
}

// expand replaces variables.
func (c *run) expand(text string) string {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(c.kept))) { // longer names first
		text = strings.ReplaceAll(text, "$"+name, c.kept[name])
	}
	return text
}

// request does a step that is a request.
func (c *run) request(t *testing.T, s *Step) Outcome {
	t.Helper()
	if s.Send != "" {
		return c.plain(t, s)
	}
	name := cmp.Or(c.expand(s.Of), "things."+c.group)
	var a answer
	if s.Change != nil || s.Define == nil {
		now := c.server.do(t, "GET", definitions+"/"+name, nil, nil)
		if now.code != http.StatusOK {
			t.Fatalf("%s: there is no %s", s.String(), name)
		}
		a = c.server.do(t, "PUT", definitions+"/"+name, c.merged(t, now.body, s.Change, s.Version, s.Schema), nil)
	} else {
		a = c.server.do(t, "POST", definitions, c.merged(t, []byte(c.basic()), s.Define, s.Version, s.Schema), nil)
	}
	o := a.outcome(s.Show)
	if a.code < 300 {
		name, _ = a.object()["metadata"].(map[string]any)["name"].(string)
		c.server.Settle(t, name)
		now := c.server.do(t, "GET", definitions+"/"+name, nil, nil)
		o.Show = now.outcome(s.Show).Show
	}
	c.keep(t, s, a)
	return o
}

// patchTypes are the values of Step.As.
var patchTypes = map[string]string{
	"": "application/merge-patch+json", "json": "application/json-patch+json", "apply": "application/apply-patch+yaml",
	"strategic": "application/strategic-merge-patch+json",
}

// accepts are the values of Step.Accept.
var accepts = map[string]string{
	"table": "application/json;as=Table;v=v1;g=meta.k8s.io", "aggregated": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
}

// plain does a step that is a request of its own.
func (c *run) plain(t *testing.T, s *Step) Outcome {
	t.Helper()
	method, path, _ := strings.Cut(c.expand(s.Send), " ")
	if !strings.HasPrefix(path, "/") {
		path = "/apis/" + c.group + "/v1/namespaces/default/" + path
	}
	header := http.Header{}
	if s.Accept != "" {
		header.Set("Accept", accepts[s.Accept])
	}
	body := []byte(c.expand(string(s.Body)))
	switch {
	case method == "PATCH":
		header.Set("Content-Type", patchTypes[s.As])
	case method == "POST" && !strings.Contains(path, "/apiextensions.k8s.io/"):
		merged, err := jsonpatch.MergePatch([]byte(`{"apiVersion":"`+c.group+`/v1","kind":"Thing"}`), body)
		if err != nil {
			t.Fatal(err)
		}
		body = merged
	}
	a := c.server.do(t, method, path, body, header)
	if name, ok := strings.CutPrefix(path, definitions+"/"); ok && method != "GET" {
		name, _, _ = strings.Cut(name, "/")
		c.server.Settle(t, name)
	}
	c.keep(t, s, a)
	return a.outcome(s.Show)
}

// keep sets the variables of a step.
func (c *run) keep(t *testing.T, s *Step, a answer) {
	t.Helper()
	for name, path := range s.Keep {
		var value string
		if found, ok := lookup(a.value(), path); !ok || json.Unmarshal([]byte(asText(found)), &value) != nil {
			t.Fatalf("%s: %d %s has no %s", s.String(), a.code, a.body, path)
		}
		c.kept[name] = value
	}
}
