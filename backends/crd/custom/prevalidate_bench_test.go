package custom

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"portico/backends/crd/prevalidate"
)

// BenchmarkPrevalidate measures the check that an object of about 3 KB is canonical and
// valid: by its bytes, and by upstream's packages.
func BenchmarkPrevalidate(b *testing.B) {
	m := schemasIn(b, "bakeries.yaml")[0]
	body := asJSON(b, read(b, "bakery.yaml"))
	checks, err := m.validators()
	if err != nil {
		b.Fatal(err)
	}
	a := m.compiled()
	if got := a.Check(body, prevalidate.Body); got != prevalidate.Valid {
		b.Fatalf("the verdict on the sample is %v", got)
	}
	decode := func() map[string]any {
		u := &unstructured.Unstructured{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &u.Object); err != nil {
			b.Fatal(err)
		}
		return u.Object
	}
	run := func(name string, each func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				each()
			}
		})
	}
	run("bytes/form", func() { a.CheckForm(body, prevalidate.Body) })
	run("bytes/all", func() { a.Check(body, prevalidate.Body) })
	run("upstream/decode", func() { decode() })
	run("upstream/decode+normalize", func() {
		if _, err := m.normalize(&unstructured.Unstructured{Object: decode()}, normalization{unknown: true}); err != nil {
			b.Fatal(err)
		}
	})
	object := decode()
	run("upstream/validate", func() {
		if errs := m.found(b.Context(), object, checks); len(errs) > 0 {
			b.Fatal(errs)
		}
	})
	run("compile", func() { prevalidate.Compile(m.props) })
}
