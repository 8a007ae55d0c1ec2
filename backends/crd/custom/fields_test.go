package custom

import (
	"fmt"
	"maps"
	"testing"

	"portico/resource"
	"portico/resource/rest"
)

// kindWithFields returns a kind with selectable fields of several types.
func kindWithFields(t testing.TB) *rest.Kind {
	t.Helper()
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
	return kinds.Kind(outline, "v1")
}

// storedObjects are the members of stored objects beside their header.
var storedObjects = []string{
	`"spec":{"tier":"gold","size":1}`, `"spec":{"tier":"\u00fc\n","size":12}`, `"tier":"top","spec":{"tier":"","size":0,"deep":{"on":true}}`,
	`"spec":{"size":5,"deep":{"on":false},"tier":null}`, `"spec":{"size":-7}`, `"spec":{"size":4.0}`, `"spec":{"size":1234567890123456789}`,
	`"spec":{"size":12345678901234567890123}`, `"spec":{"size":1,"size":2}`, `"spec":{"size":1,"deep":{}}`, `"spec":{"size":1,"deep":{"on":true,"on":false}}`,
	`"spec":{"tier":"no size"}`, `"spec":{}`, `"unknown":{"tier":"x"},"spec":{"size":1,"tier":"y","other":{"tier":"z"}}`, `"spec":{"size":{"a":1}}`, `"spec":{"size":1,"deep":[]}`,
}

// storedFields returns the fields that were scanned and those of the decoded object. known is false if it cannot be
// decoded, and scanned if the scan leaves the object to the decoder.
func storedFields(k *rest.Kind, members string) (got, want map[string]string, scanned, known bool) {
	o, err := resource.Parse(fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"X","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"a"},%s}`, members))
	if err != nil {
		return nil, nil, false, false
	}
	obj, err := k.Codec.DecodeStored(o)
	if err != nil {
		return nil, nil, false, false
	}
	got, scanned = k.StoredFields(o)
	return got, k.Fields(obj), scanned, true
}

// Selectable fields that are read from the bytes of an object are those of the decoded object.
func TestStoredFields(t *testing.T) {
	t.Parallel()
	k := kindWithFields(t)
	count := map[bool]int{}
	for _, members := range storedObjects {
		got, want, scanned, known := storedFields(k, members)
		if !known {
			t.Fatalf("%s: cannot be decoded", members)
		}
		count[scanned]++
		if scanned && !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", members, got, want)
		}
	}
	if count[true] < 5 || count[false] < 5 {
		t.Errorf("objects by whether the fields were scanned: %v", count)
	}
}

// The scan of fields finds what the decoder finds, or leaves the object to it.
func FuzzStoredFields(f *testing.F) {
	for _, members := range storedObjects {
		f.Add(members)
	}
	k := kindWithFields(f)
	f.Fuzz(func(t *testing.T, members string) {
		if got, want, scanned, known := storedFields(k, members); known && scanned && !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
