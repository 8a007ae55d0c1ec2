package sources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// Decoding is bounded by the number of elements, which take more memory than their text. What is
// beyond the bound is left out and does not fail the check.
func TestTooManyElements(t *testing.T) {
	limits := DefaultLimits()
	dense := strings.Repeat("{},", limits.Elements) + "{}"
	const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	const apps = `{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"deployments","verbs":["get"]}]}]}`
	for name, tc := range map[string]struct {
		path, contentType, body string
		known, dropped          int
	}{
		"groups":               {"/apis", "application/json", `{"groups":[{"name":"apps","versions":[{"version":"v1"}]},` + dense + `]}`, 1, 0},
		"versions of a group":  {"/apis", "application/json", `{"groups":[{"name":"x","versions":[` + dense + `]},{"name":"apps","versions":[{"version":"v1"}]}]}`, 1, 1},
		"v2":                   {"/apis", v2, `{"items":[` + apps + `,` + dense + `]}`, 1, 0},
		"resources of v2":      {"/apis", v2, `{"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[` + dense + `]}]},` + apps + `]}`, 2, 1},
		"versions of the core": {"/api", "application/json", `{"versions":["v1"` + strings.Repeat(`,"v1"`, limits.Elements) + `]}`, 1, 0},
		"a document":           {"/apis/apps/v1", "application/json", `{"groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","verbs":["get"]},` + dense + `]}`, 1, 1},
		"other members":        {"/apis", v2, `{"x":[` + dense + `],"items":[` + apps + `]}`, 1, 0},
		"a long document":      {"/apis/apps/v1", "application/json", `{"groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","verbs":["get"]},"` + strings.Repeat("x", maxDocument), 1, 1},
		"a long list":          {"/apis", v2, `{"items":[` + apps + `,{"metadata":{"name":"` + strings.Repeat("x", int(limits.Document)), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, described("apps", "v1", "deployments"))
			s := b.source()
			b.answer(tc.path, 200, tc.contentType, tc.body)
			check(t, s, true)
			gvs, _ := s.GroupVersions()
			if len(gvs) != tc.known || s.Dropped() != tc.dropped {
				t.Errorf("%d known, %d left out", len(gvs), s.Dropped())
			}
			if at := slices.IndexFunc(gvs, func(gv discovery.GroupVersion) bool { return gv.Group == "apps" }); at < 0 || len(gvs[at].Legacy) == 0 || gvs[at].Legacy[0].Name != "deployments" && gvs[at].Legacy[1].Name != "deployments" {
				t.Error("apps is lost by it")
			}
		})
	}
}

// A single document that is too large is truncated and does not fail the check.
func TestOneLargeDocument(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source(schema.GroupVersion{Group: "apps", Version: "v1"})
	b.answer("/apis/apps/v1", 200, "application/json", `{"groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","verbs":["get"]},`+strings.Repeat("{},", DefaultLimits().Elements)+`{}]}`)
	check(t, s, true)
	gvs, _ := s.GroupVersions()
	if len(gvs) != 1 || len(gvs[0].Legacy) != 2 || s.Dropped() != 1 {
		t.Errorf("known %d, left out %d", len(gvs), s.Dropped())
	}
}

// Beyond the number of group/versions the first ones are kept, and nothing counts as removed.
func TestTooManyGroupVersions(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	check(t, s, true)
	var list strings.Builder
	most := DefaultLimits().GroupVersions
	for i := range most + 7 {
		fmt.Fprintf(&list, `{"metadata":{"name":"g%d.example.com"},"versions":[{"version":"v1","resources":[]}]},`, i)
	}
	b.answer("/apis", 200, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", `{"items":[`+strings.TrimSuffix(list.String(), ",")+`]}`)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is read", func() bool { return s.Dropped() == 7 })
	if gvs, whole := s.Served(); len(gvs) < most-2*maxFailures || len(gvs) > most || whole {
		t.Errorf("%d known, and that is said to be everything: %v", len(gvs), whole)
	}
}

// decodeArray returns the elements that encoding/json decodes, and the first of them if the document
// is truncated; it does not panic.
func FuzzDecodeArray(f *testing.F) {
	for _, text := range []string{
		`{"kind":"K","items":[{"a":"]}\\\"["},{},[1,2],"x",null,-1.5e3,true]}`, ` { "x" : [ { } ] , "items" : [ ] , "kind" : "K" } `, `null`, `{}`, `[]`,
		`{"items":null}`, `{"items":[1,2`, `{"items":{"items":[1]},"kind":7}`, `{"items":[1],"items":[2,3]}`, `{"items":[1 2]}`, `{"a":}`, `{"items":[,1]}`,
	} {
		f.Add([]byte(text), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		items := func(text []byte) (all [][]byte, err error) {
			var h header
			_, err = h.decode(json.NewDecoder(bytes.NewReader(text)), "items", func(item json.RawMessage) error {
				all = append(all, bytes.Clone(item))
				return nil
			})
			return all, err
		}
		got, err := items(text)
		if cut >= 0 && cut < len(text) {
			_, _ = items(text[:cut])
		}
		// Names that are escaped, in other letters, or there twice, are read otherwise.
		if !json.Valid(text) || bytes.Contains(text, []byte(`\u`)) || bytes.Count(bytes.ToLower(text), []byte(`"items"`)) != 1 || !bytes.Contains(text, []byte(`"items"`)) {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil || want["items"] == nil {
			return
		}
		var list []json.RawMessage
		if json.Unmarshal(want["items"], &list) != nil {
			return
		}
		if err != nil {
			for _, name := range []string{"kind", "apiVersion", "groupVersion"} {
				if _, named := want[name]; named {
					return // which may be no string
				}
			}
			t.Fatalf("%q: %v", text, err)
		}
		if len(got) != len(list) {
			t.Fatalf("%q: %d items, want %d", text, len(got), len(list))
		}
		for i := range list {
			if !bytes.Equal(bytes.TrimSpace(got[i]), bytes.TrimSpace(list[i])) {
				t.Errorf("%q: item %d is %q, want %q", text, i, got[i], list[i])
			}
		}
	})
}
