package fieldtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// prepareValues installs the definition of a row with values, and returns the resourceVersions of
// the old ones by their steps.
func (c *run) prepareValues(t *testing.T) map[int]string {
	t.Helper()
	schema := func(x json.RawMessage) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"x":%s},"x-kubernetes-validations":%s}`, x, cmp.Or(string(c.Root), "[]")))
	}
	first := c.Schema
	if c.Before != nil {
		first = c.Before
	}
	c.must(t, &Step{Define: json.RawMessage(`{}`), Schema: schema(first)})
	revisions := map[int]string{}
	for i := range c.Steps {
		if old := c.Steps[i].Old; old != nil {
			a := c.server.do(t, http.MethodPost, c.things(), c.object(&c.Steps[i], i, "", old), nil)
			if a.code != http.StatusCreated {
				t.Fatalf("%s: %d %s", old, a.code, a.body)
			}
			revisions[i], _ = a.object()["metadata"].(map[string]any)["resourceVersion"].(string)
		}
	}
	if c.Before != nil {
		c.must(t, &Step{Schema: schema(c.Schema)})
	}
	return revisions
}

// must does a step that has to succeed.
func (c *run) must(t *testing.T, s *Step) {
	t.Helper()
	if o := c.request(t, s); o.Code != 0 {
		t.Fatalf("%s: %d %s", s.String(), o.Code, o.Message)
	}
}

func (c *run) things() string { return "/apis/" + c.group + "/v1/namespaces/default/things" }

// name returns the name of a step's object.
func (s *Step) name(i int) string { return cmp.Or(s.Name, fmt.Sprint("row-", i)) }

// object returns the body with a value.
func (c *run) object(s *Step, i int, revision string, x json.RawMessage) []byte {
	member := ""
	if x != nil {
		member = `,"x":` + string(x)
	}
	return fmt.Appendf(nil, `{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":%q,"resourceVersion":%q}%s}`, c.group, s.name(i), revision, member)
}

// value sends the value of a step.
func (c *run) value(t *testing.T, s *Step, i int, revision string) Outcome {
	t.Helper()
	method, path := http.MethodPost, c.things()
	if s.Old != nil {
		method, path = http.MethodPut, path+"/"+s.name(i)
	}
	a := c.server.do(t, method, path, c.object(s, i, revision, s.New), nil)
	o := a.outcome(nil)
	if o.Code == 0 {
		x, found := a.object()["x"]
		if !found {
			x = "none"
		}
		o.Stored = json.RawMessage(asText(x))
	}
	return o
}
