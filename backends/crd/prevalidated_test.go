package crd

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/backends/crd/prevalidate"
)

// FuzzPrevalidateStored compares the verdict on the bytes that an object is to
// be stored as with what upstream's packages find in the object: a number with
// a fraction of 0 is written as a whole one. Schemas and objects are those of
// FuzzPrevalidate.
func FuzzPrevalidateStored(f *testing.F) {
	for seed := range uint64(400) {
		f.Add(uint8(2+seed%6), seed, []byte(nil))
	}
	for which := range uint8(len(realSchemas)) {
		f.Add(which, uint64(0), asJSON(f, read(f, "bakery.yaml")))
	}
	real := schemasIn(f, realSchemas...)
	bodies := newBodies()
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, raw []byte) {
		r := rand.New(rand.NewPCG(seed, uint64(which)))
		m := subjectFor(t, r, real, which)
		data := raw
		if len(raw) == 0 {
			data = madeObject(r, m.props)
		}
		state := m.tryToNormalize(bodies, data, normalization{})
		if state.err != nil {
			return
		}
		u := &unstructured.Unstructured{Object: state.after}
		u.SetGeneration(1)
		written, err := json.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		if m.compiled().Check(written, prevalidate.Stored) != prevalidate.Valid {
			return
		}
		if errs := m.faults(t, u.Object); len(errs) > 0 {
			t.Fatalf("accepted %s, written as %s: %v", data, written, errs)
		}
	})
}

// A number is held to its schema as it was sent, not as it is written.
func TestNumbersAsSent(t *testing.T) {
	s := running(t)
	s.install(t, definitionWith(`{"type":"object","properties":{"spec":{"type":"object","properties":{
		"whole":{"type":"integer"},"least":{"type":"number","minimum":0.5},"tens":{"type":"number","multipleOf":10}}}}}`))
	for i, c := range []struct {
		spec string
		code int
	}{
		{`"whole":1.0`, 201}, {`"whole":1e3`, 201}, {`"whole":100000000000000000`, 201}, {`"whole":1e17`, 422},
		{`"least":0`, 201}, {`"least":0.0`, 422}, {`"least":1.0`, 201},
		{`"tens":20.0`, 201}, {`"tens":100000000000000000`, 201}, {`"tens":1e17`, 422}, {`"tens":5.0`, 422},
	} {
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"X","metadata":{"name":"a-%d"},"spec":{%s}}`, i, c.spec)
		if a := s.send(t, "POST", "/apis/example.com/v1/namespaces/default/xs", "application/json", body); a.code != c.code {
			t.Errorf("%s got %d %s", c.spec, a.code, a.body)
		}
	}
}
