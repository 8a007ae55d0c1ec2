package custom

import (
	"fmt"
	"maps"
	"testing"

	"portico/resource"
)

// Selectable fields that are read from the bytes of an object are those of the decoded object.
func TestStoredFields(t *testing.T) {
	t.Parallel()
	outline, err := NewOutline(&resource.Object{Data: []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"xs.example.com"},
		"spec":{"group":"example.com","names":{"plural":"xs","kind":"X"},"versions":[{"name":"v1","storage":true,
		"selectableFields":[{"jsonPath":".spec.tier"},{"jsonPath":".spec.size"},{"jsonPath":".spec.deep.on"},{"jsonPath":".tier"}],
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"tier":{"type":"string"},"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
		"properties":{"tier":{"type":"string","nullable":true},"size":{"type":"integer","default":3},
		"deep":{"type":"object","properties":{"on":{"type":"boolean"}}}}}}}}}]},
		"status":{"acceptedNames":{"plural":"xs","kind":"X"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := NewKinds(WebhookClients{})
	if err != nil {
		t.Fatal(err)
	}
	k := kinds.Kind(outline, "v1")
	scanned := map[bool]int{}
	for _, rest := range []string{
		`"spec":{"tier":"gold","size":1}`, `"spec":{"tier":"\u00fc\n","size":12}`, `"tier":"top","spec":{"tier":"","size":0,"deep":{"on":true}}`,
		`"spec":{"size":5,"deep":{"on":false},"tier":null}`, `"spec":{"size":-7}`, `"spec":{"size":4.0}`, `"spec":{"size":1234567890123456789}`,
		`"spec":{"size":12345678901234567890123}`, `"spec":{"size":1,"size":2}`, `"spec":{"size":1,"deep":{}}`, `"spec":{"size":1,"deep":{"on":true,"on":false}}`,
		`"spec":{"tier":"no size"}`, `"spec":{}`, `"unknown":{"tier":"x"},"spec":{"size":1,"tier":"y","other":{"tier":"z"}}`, `"spec":{"size":{"a":1}}`, `"spec":{"size":1,"deep":[]}`,
	} {
		o, err := resource.Parse(fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"X","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"a"},%s}`, rest))
		if err != nil {
			t.Fatal(err)
		}
		obj, err := k.Codec.DecodeStored(o)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := k.StoredFields(o)
		scanned[ok]++
		if want := k.Fields(obj); ok && !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", rest, got, want)
		}
	}
	if scanned[true] < 5 || scanned[false] < 5 {
		t.Errorf("objects by whether the fields were scanned: %v", scanned)
	}
}
