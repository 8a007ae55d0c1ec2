package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
)

// smallLimits are Limits that small answers exceed.
func smallLimits() Limits {
	limits := DefaultLimits()
	limits.GroupVersions, limits.Elements, limits.Document, limits.Group = 100, 1000, 64<<10, 32<<10
	return limits
}

// What exceeds a limit is left out, and the rest of the answer counts. Decoding is bounded by the
// number of elements, which take more memory than their text.
func TestAnswersBeyondTheLimits(t *testing.T) {
	limits := smallLimits()
	dense := strings.Repeat("{},", limits.Elements) + "{}"
	many := ""
	for i := range limits.GroupVersions + 7 {
		many += fmt.Sprintf(`,{"metadata":{"name":"g%d.example.com"},"versions":[{"version":"v1","freshness":"Stale"}]}`, i)
	}
	const (
		apps     = `{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"deployments","verbs":["get"]}]}]}`
		document = `{"groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","verbs":["get"]},`
	)
	for name, tc := range map[string]struct {
		path, contentType, body string
		known, dropped          int
		only                    bool
	}{
		"groups":               {"/apis", acceptLegacy, `{"groups":[{"name":"apps","versions":[{"version":"v1"}]},` + dense + `]}`, 1, 0, false},
		"versions of a group":  {"/apis", acceptLegacy, `{"groups":[{"name":"x","versions":[` + dense + `]},{"name":"apps","versions":[{"version":"v1"}]}]}`, 1, 1, false},
		"v2":                   {"/apis", typeAggregated, `{"items":[` + apps + `,` + dense + `]}`, 1, 0, false},
		"resources of v2":      {"/apis", typeAggregated, `{"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[` + dense + `]}]},` + apps + `]}`, 2, 1, false},
		"versions of the core": {"/api", acceptLegacy, `{"versions":["v1"` + strings.Repeat(`,"v1"`, limits.Elements) + `]}`, 1, 0, false},
		"a document":           {"/apis/apps/v1", acceptLegacy, document + dense + `]}`, 1, 1, false},
		"the only document":    {"/apis/apps/v1", acceptLegacy, document + dense + `]}`, 1, 1, true},
		"other members":        {"/apis", typeAggregated, `{"x":[` + dense + `],"items":[` + apps + `]}`, 1, 0, false},
		"a long document":      {"/apis/apps/v1", acceptLegacy, document + `"` + strings.Repeat("x", maxDocument), 1, 1, false},
		"a long list":          {"/apis", typeAggregated, `{"items":[` + apps + `,{"metadata":{"name":"` + strings.Repeat("x", int(limits.Document)), 1, 0, false},
		"too many of v2":       {"/apis", typeAggregated, `{"items":[` + apps + many + `]}`, limits.GroupVersions, 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, described("apps", "v1", "deployments"))
			cfg := b.config()
			if tc.only {
				cfg = b.config(schema.GroupVersion{Group: "apps", Version: "v1"})
			}
			cfg.Limits = limits
			s := NewSource(cfg)
			defer s.Close()
			b.answer(tc.path, 200, tc.contentType, tc.body)
			for range 2 {
				if _, err := settle(t, s); err != nil {
					t.Fatal(err)
				}
			}
			gvs, complete := s.Served()
			if len(gvs) != tc.known || s.Dropped() != tc.dropped || complete && len(gvs) == limits.GroupVersions {
				t.Errorf("%d known, %d left out, complete %v", len(gvs), s.Dropped(), complete)
			}
			at := slices.IndexFunc(gvs, func(gv discovery.GroupVersion) bool { return gv.Group == "apps" })
			if at < 0 || !slices.Contains(resourceNames(gvs[at]), "deployments") {
				t.Error("apps is lost")
			}
		})
	}
}

// Descriptions beyond the memory limit are replaced by the names of their group/versions.
func TestMemoryLimit(t *testing.T) {
	large := described("large.example.com", "v1", "gadgets", "things", "widgets")
	b := newBackend(t, described("apps", "v1", "deployments"), large)
	cfg := b.config()
	cfg.Limits = DefaultLimits()
	cfg.Limits.Memory = large.Size()
	s := NewSource(cfg)
	defer s.Close()
	check(t, s, true)
	same(t, s, "apps/v1:deployments")
	gvs, _ := s.GroupVersions()
	if len(gvs) != 2 || !gvs[1].Unknown || s.Dropped() != 1 || len(s.Unread()) != 1 || !errors.Is(s.Unread()[0].Err, ErrBeyondLimits) {
		t.Errorf("known are %+v, %d left out: %v", gvs, s.Dropped(), s.Unread())
	}
}

func resourceNames(gv discovery.GroupVersion) (names []string) {
	for _, r := range gv.Legacy {
		names = append(names, r.Name)
	}
	return names
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
		// encoding/json reads names that are escaped, of another case, or repeated differently.
		if !json.Valid(text) || bytes.Contains(text, []byte(`\u`)) || bytes.Count(bytes.ToLower(text), []byte(`"items"`)) != 1 || !bytes.Contains(text, []byte(`"items"`)) {
			return
		}
		var want map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(text, &want) != nil || want["items"] == nil || json.Unmarshal(want["items"], &list) != nil {
			return
		}
		if err != nil {
			for _, name := range []string{"kind", "apiVersion", "groupVersion"} {
				if _, named := want[name]; named {
					return // its value may be no string
				}
			}
			t.Fatalf("%q: %v", text, err)
		}
		if !slices.EqualFunc(got, list, func(a []byte, b json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }) {
			t.Fatalf("%q: items %q, want %q", text, got, list)
		}
	})
}

// A group/version with an invalid name is reported and not requested, in both forms of the index,
// and the others are complete.
func TestInvalidNames(t *testing.T) {
	var old, v2 []string
	add := func(group, version string) {
		old = append(old, fmt.Sprintf(`{"name":%q,"versions":[{"version":%q}]}`, group, version))
		v2 = append(v2, fmt.Sprintf(`{"metadata":{"name":%q},"versions":[{"version":%q,"resources":[]}]}`, group, version))
	}
	for _, name := range []string{"widgets.example.com", "UPPER.io", "", "sl/ash", strings.Repeat("a", 10*maxNameKept)} {
		add(name, "v1")
	}
	add("widgets.example.com", "V1")
	for form, c := range map[string][2]string{
		"legacy": {acceptLegacy, `{"kind":"APIGroupList","groups":[` + strings.Join(old, ",") + `]}`},
		"v2":     {typeAggregated, `{"kind":"APIGroupDiscoveryList","items":[` + strings.Join(v2, ",") + `]}`},
	} {
		t.Run(form, func(t *testing.T) {
			b := newBackend(t, described("", "v1", "pods"), described("widgets.example.com", "v1", "widgets"))
			b.answer("/apis", http.StatusOK, c[0], c[1])
			s := b.source()
			defer s.Close()
			check(t, s, true)
			if gvs, complete := s.Served(); len(gvs) != 2 || !complete {
				t.Errorf("%d group/versions are known, complete %v", len(gvs), complete)
			}
			reported := map[string]bool{}
			for _, u := range s.Unread() {
				if !errors.Is(u.Err, ErrInvalidName) || len(u.Name()) > maxNameKept+10 {
					t.Errorf("%.200s: %v", u.Name(), u.Err)
				}
				reported[u.Name()] = true
			}
			for _, want := range []string{`"UPPER.io/v1"`, `"/v1"`, `"sl/ash/v1"`, `"widgets.example.com/V1"`} {
				if !reported[want] {
					t.Errorf("%s is not reported", want)
				}
			}
			if asked := b.requests(); strings.Contains(asked, "UPPER") || strings.Contains(asked, "sl/ash") || strings.Contains(asked, "V1") {
				t.Errorf("requests %s", asked)
			}
		})
	}
}

// The first of two entries for one group/version, and of two resources of one name, counts.
// Subresources are in the order of the server, behind their resource.
func TestListedTwice(t *testing.T) {
	b := newBackend(t, described("", "v1", "pods"))
	b.answer("/apis", http.StatusOK, acceptLegacy, `{"kind":"APIGroupList","groups":[{"name":"widgets.example.com","versions":[{"version":"v1"},{"version":"v1"}]},{"name":"widgets.example.com","versions":[{"version":"v1"}]}]}`)
	b.answer("/apis/widgets.example.com/v1", http.StatusOK, acceptLegacy, `{"kind":"APIResourceList","groupVersion":"widgets.example.com/v1","resources":[
		{"name":"widgets","kind":"First","verbs":["get"]},{"name":"gadgets","kind":"Gadget","verbs":["get"]},{"name":"widgets","kind":"Second","verbs":["list"]},
		{"name":"gadgets/status","kind":"Gadget","verbs":["get"]},{"name":"gadgets/scale","kind":"Gadget","verbs":["get"]},{"name":"gadgets/status","kind":"Second","verbs":["get"]}]}`)
	s := b.source()
	defer s.Close()
	check(t, s, true)
	gvs, _ := s.Served()
	var names []string
	for _, r := range gvs[1].Legacy {
		names = append(names, r.Name+" "+r.Kind)
	}
	if len(gvs) != 2 || len(gvs[1].Aggregated) != 2 || !slices.Equal(names, []string{"gadgets Gadget", "gadgets/status Gadget", "gadgets/scale Gadget", "widgets First"}) {
		t.Errorf("known are %+v", gvs)
	}
}

// Kinds that the aggregated form of a server leaves out are empty ones: older clients crash on null.
func TestMissingKinds(t *testing.T) {
	b := newBackend(t, described("odd.example.com", "v1", "parts"))
	b.answer("/apis", http.StatusOK, typeAggregated, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"odd.example.com"},
		"versions":[{"version":"v1","freshness":"Current","resources":[
		{"resource":"missing","subresources":[{"subresource":"missing"}]},
		{"resource":"null","responseKind":null,"subresources":[{"subresource":"null","responseKind":null}]},
		{"resource":"empty","responseKind":{"group":"","version":"","kind":""},"subresources":[{"subresource":"empty","responseKind":{"group":"","version":"","kind":""}}]},
		{"resource":"named","responseKind":{"group":"","version":"","kind":"Named"},"subresources":[{"subresource":"named","responseKind":{"group":"","version":"","kind":"Sub"}}]}
		]}]}]}`)
	s := b.source()
	defer s.Close()
	check(t, s, true)
	gvs, _ := s.GroupVersions()
	var got []string
	for _, gv := range gvs {
		for _, r := range gv.Aggregated {
			if r.ResponseKind == nil || len(r.Subresources) > 0 && r.Subresources[0].ResponseKind == nil {
				t.Fatalf("%s has no kind", r.Resource)
			}
			for _, sub := range r.Subresources {
				got = append(got, fmt.Sprintf("%s %q %q", r.Resource, r.ResponseKind.Kind, sub.ResponseKind.Kind))
			}
		}
	}
	if want := []string{`missing "" ""`, `null "" ""`, `empty "" ""`, `named "Named" "Sub"`}; !slices.Equal(got, want) {
		t.Errorf("known are %q", got)
	}
}
