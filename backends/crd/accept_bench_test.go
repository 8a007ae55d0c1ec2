package crd

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"portico/backends/crd/accept"
)

// BenchmarkJudge is what it takes to know that the bytes of an object of about
// 3 KB are a fixed point, and valid: by the byte walk, and by what it spares.
func BenchmarkJudge(b *testing.B) {
	m := schemasIn(b, "bakeries.yaml")[0]
	body := asJSON(b, read(b, "bakery.yaml"))
	checks, err := m.checks()
	if err != nil {
		b.Fatal(err)
	}
	a := m.acceptor()
	if got := a.Accept(body, accept.Body); got != accept.Valid {
		b.Fatalf("the sample is %v", got)
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
	run("accept/shape", func() { a.Shape(body, accept.Body) })
	run("accept/all", func() { a.Accept(body, accept.Body) })
	run("upstream/decode", func() { decode() })
	run("upstream/decode+settle", func() {
		if _, err := m.settle(&unstructured.Unstructured{Object: decode()}, settling{unknown: true}); err != nil {
			b.Fatal(err)
		}
	})
	settled := decode()
	run("upstream/validate", func() {
		if errs := m.found(b.Context(), settled, checks); len(errs) > 0 {
			b.Fatal(errs)
		}
	})
	run("compile", func() { accept.Compile(m.props) })
}
