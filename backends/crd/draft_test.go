package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/crd/accept"
	"portico/resource"
	"portico/resource/rest"
)

// FuzzCanon rewrites what the acceptor found sound, and compares it with what
// decoding and encoding make of it.
func FuzzCanon(f *testing.F) {
	for _, seed := range []string{
		`{"b":1,"a":{"d":[],"c":[{}, {"y":null,"x":[1,2]}]}}`, ` { "a" : "\u0041\n\"<é" , "" : -0.5 } `, `{"a":1e3}`, `{"a":1,"a":2}`, `{"é":1}`,
		`{"a":0.0000001,"b":1.50}`, `{"a":[[[]]],"b":true,"c":false}`, `{"a":-0}`, `{"a":9223372036854775808}`, `{"\u0061":1}`, `{"a":"`, `{"a"`, `{"a":[1 2]}`, `{"a\"b":1,"a":2}`,
		`{"a":01}`, `{"a":"x" "b":1}`,
	} {
		f.Add([]byte(seed))
	}
	walk := acceptorOfAnything(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &canon{in: data}
		ok := c.peek() == '{' && c.value(0)
		whole := append(append([]byte(`{"apiVersion":"a/v1","kind":"K","metadata":{"name":"n"},"any":`), data...), '}')
		if !ok || walk.Shape(whole, accept.Body) < accept.Settled {
			return
		}
		object, err := decodeObject(data)
		if err != nil {
			t.Fatalf("accepted %s: %v", data, err)
		}
		if want, err := encode(object); err != nil || !bytes.Equal(c.out, want) {
			t.Fatalf("of %s\ngot  %s\nwant %s %v", data, c.out, want, err)
		}
	})
}

func acceptorOfAnything(t testing.TB) *accept.Acceptor {
	t.Helper()
	any := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	return subjectOf(t, &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"any": any},
	}}).acceptor()
}

// FuzzDraft creates objects as drafts and in the usual way: what is stored must
// be the same, down to the byte.
func FuzzDraft(f *testing.F) {
	for _, seed := range draftSeeds {
		f.Add([]byte(seed))
	}
	f.Add(asJSON(f, read(f, "bakery.yaml")))
	s := running(f)
	s.install(f, read(f, "bakeries.yaml"))
	s.install(f, drafted)
	f.Fuzz(func(t *testing.T, body []byte) { s.createBoth(t, body) })
}

// draftSeeds are bodies, most of which can be drafts.
var draftSeeds = []string{
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","creationTimestamp":null},"spec":{"z":"1","a":2}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","data":{"b":[{"id":"x","v":1},{"id":"a"}],"a":{"q":1}},"metadata":{"name":"a","labels":{"x":"y"},"annotations":{"b/c":"<d>"}}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","finalizers":["x.y"],"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","uid":"u","generation":5,"selfLink":"x"},"spec":{},"free":{"a":{"b":[1,{"c":null}]},"":"\""}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a"},"free":{"\"":1}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a"},"status":{"phase":"x"}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"generateName":"a"}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"UPPER"}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"other"}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","resourceVersion":"5"}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","labels":{"-":"-"}}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","managedFields":[{"manager":"m"}]},"spec":{}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a","deletionTimestamp":"2024-05-01T05:00:00Z"},"spec":{}}`,
	`{"kind":"Other","apiVersion":"example.com/v1","metadata":{"name":"a"},"spec":{}}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","spec":{"z":"\u00e9","set":["b","a"],"nums":[3,1.5,-2]},"metadata":{"name":"a"},"zeta":"é\t"}`,
	`{"kind":"Draft","apiVersion":"example.com/v1","metadata":{"name":"a"},"spec":{"ratio":0.0000001}}`,
}

const drafted = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: drafts.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: drafts, kind: Draft}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          data:
            type: object
            properties:
              a: {type: object, additionalProperties: {type: integer}, x-kubernetes-map-type: atomic}
              b:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [id]
                items: {type: object, required: [id], properties: {id: {type: string}, v: {type: integer}}}
          free: {type: object, x-kubernetes-preserve-unknown-fields: true}
          spec:
            type: object
            properties:
              z: {type: string}
              a: {type: integer}
              ratio: {type: number}
              set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              nums: {type: array, items: {type: number}}
          status: {type: object, properties: {phase: {type: string}}}
          zeta: {type: string}
`

// createBoth creates an object as a draft, if it can be one, and otherwise; it
// reports whether it was one.
func (s *Server) createBoth(t *testing.T, body []byte) bool {
	t.Helper()
	was := false
	if object, err := decodeObject(body); err == nil && at(object, "metadata", "name") == nil {
		return false // what has no name gets another one each time
	}
	for _, path := range []string{"/apis/example.com/v1/namespaces/default/bakeries", "/apis/example.com/v1/namespaces/default/drafts"} {
		asDraft := s.createdBy(t, path, body, true, &was)
		if usual := s.createdBy(t, path, body, false, nil); asDraft != usual {
			t.Fatalf("of %s\nas a draft %s\notherwise  %s", body, asDraft, usual)
		}
	}
	return was
}

// createdBy is the answer to a dry run of creating an object, with or without
// drafts, without what is different each time.
func (s *Server) createdBy(t *testing.T, path string, body []byte, drafts bool, was *bool) string {
	t.Helper()
	code, text, _ := s.answerTo(t, path+"?dryRun=All", body, drafts, was)
	if code != 201 {
		return strconv.Itoa(code) // the order of errors is not always the same
	}
	return text
}

// answerTo is the whole answer to a creation, and its warnings.
func (s *Server) answerTo(t *testing.T, path string, body []byte, drafts bool, was *bool) (code int, text string, warnings []string) {
	t.Helper()
	api := rest.New(rest.Config{
		Warn: func(_ context.Context, text string) { warnings = append(warnings, text) },
		Lookup: func(act *resource.Action) (*rest.Resource, error) {
			res := *s.served.Load().byGR[schema.GroupResource{Group: act.Group, Resource: act.Resource}].rows[act.Version]
			kind := *res.Kind
			make := kind.Strategy.Draft
			kind.Strategy.Draft = func(body []byte) rest.Draft {
				d := make(body)
				if d == nil || !drafts {
					return nil
				}
				*was = true
				return d
			}
			return &rest.Resource{Kind: &kind, Store: res.Store}, nil
		},
	})
	r := httptest.NewRequest("POST", path, bytes.NewReader(body))
	r.Header.Set("User-Agent", "tester/1.0")
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin"}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	if w.Code != 201 {
		return w.Code, w.Body.String(), warnings
	}
	return w.Code, withoutChance(t, w.Body.Bytes()), warnings
}

// withoutChance is a new object without what is different each time.
func withoutChance(t *testing.T, text []byte) string {
	t.Helper()
	o, err := resource.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	object, err := decodeObject(text)
	if err != nil {
		t.Fatal(err)
	}
	times := []any{at(object, "metadata", "creationTimestamp")}
	if entries, ok := at(object, "metadata", "managedFields").([]any); ok {
		times = append(times, at(entries[0], "time"))
	}
	text = bytes.ReplaceAll(text, []byte(o.UID), []byte("UID"))
	for _, time := range times {
		quoted, _ := json.Marshal(time)
		text = bytes.ReplaceAll(text, quoted, []byte(`"TIME"`))
	}
	return string(text)
}

// Most seeds must be drafts, or nothing is compared.
func TestDrafts(t *testing.T) {
	s := running(t)
	s.install(t, read(t, "bakeries.yaml"))
	s.install(t, drafted)
	want := []bool{true, true, true, true, false, false, false, true, true, true, true, true, true, true, true, false}
	for i, seed := range draftSeeds {
		if was := s.createBoth(t, []byte(seed)); was != want[i] {
			t.Errorf("a draft: %v, of %s", was, seed)
		}
	}
	real := schemasIn(t, realSchemas...)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		m := subjectFor(t, r, real, uint8(2+i%6))
		made := madeObject(r, m.props)
		d := newDrafter().read(made)
		if m.acceptor().Accept(made, accept.Body) != accept.Valid || d == nil {
			continue
		}
		o, err := d.encodeAs(&codec{})
		if err != nil {
			t.Fatalf("%s: %v", made, err)
		}
		object, err := decodeObject(made)
		if err != nil {
			t.Fatal(err)
		}
		if meta := object["metadata"].(map[string]any); meta["creationTimestamp"] == nil {
			delete(meta, "creationTimestamp")
		}
		if wanted, err := encode(object); err != nil || !bytes.Equal(o.Data, wanted) {
			t.Fatalf("of %s\ngot  %s\nwant %s %v", made, o.Data, wanted, err)
		}
	}
}

func (d *draft) encodeAs(c *codec) (*resource.Object, error) {
	d.codec = c
	return d.Encode()
}

// Who does not say that it can do without sees every object, whole.
func TestAdmissionSeesDrafts(t *testing.T) {
	s := running(t)
	s.install(t, drafted)
	saw := &witness{}
	api := rest.New(rest.Config{Lookup: s.lookup, Admission: saw})
	r := httptest.NewRequest("POST", "/apis/example.com/v1/namespaces/default/drafts", strings.NewReader(draftSeeds[0]))
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin"}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	if w.Code != 201 || at(saw.object, "spec", "z") != "1" {
		t.Fatalf("%d %s; admission saw %v", w.Code, w.Body, saw.object)
	}
}

// witness keeps what it is asked about.
type witness struct{ object map[string]any }

func (w *witness) Mutate(_ context.Context, a *rest.Attributes) error {
	w.object = runtime.DeepCopyJSON(a.Object.(*unstructured.Unstructured).Object)
	return nil
}

func (w *witness) Validate(context.Context, *rest.Attributes) error { return nil }

// Objects that are created at the same time share no memory.
func TestDraftsAtOnce(t *testing.T) {
	s := running(t)
	s.install(t, drafted)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				name, text := fmt.Sprintf("d-%d-%d", i, j), strings.Repeat(string(rune('a'+i)), 50+j*20)
				body := fmt.Sprintf(`{"kind":"Draft","apiVersion":"example.com/v1","spec":{"z":%q,"a":%d},"metadata":{"name":%q}}`, text, j, name)
				if j%5 == 0 { // the usual way: fields that are unknown
					body = strings.Replace(body, `"a":`, `"unknown":`, 1)
				}
				s.send(t, "POST", "/apis/example.com/v1/namespaces/default/drafts", mediaJSON, body)
			}
		})
	}
	all.Wait()
	for i := range 8 {
		for j := range 50 {
			a := s.send(t, "GET", fmt.Sprintf("/apis/example.com/v1/namespaces/default/drafts/d-%d-%d", i, j), "", "")
			if want := fmt.Sprintf(`"z":"%s"`, strings.Repeat(string(rune('a'+i)), 50+j*20)); !bytes.Contains(a.body, []byte(want)) {
				t.Fatalf("of %d, %d there is %s", i, j, a.body)
			}
		}
	}
}
