package loop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"portico/resource"
)

// merge must do to a sorted list what its changes would do to a map.
func TestMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	model := map[resource.Key]*resource.Object{}
	var items []*resource.Object
	for round := range 200 {
		pending := changes{}
		for range rng.IntN(6) {
			key := resource.Key{Namespace: []string{"a", "a-b", "b"}[rng.IntN(3)], Name: fmt.Sprint(rng.IntN(8))}
			if rng.IntN(3) == 0 {
				pending[key] = nil
				delete(model, key)
				continue
			}
			o := &resource.Object{Header: resource.Header{Namespace: key.Namespace, Name: key.Name, Revision: int64(round)}}
			pending[key], model[key] = o, o
		}
		before := slices.Clone(items)
		next := merge(items, pending)
		if !slices.Equal(before, items) {
			t.Fatal("merge changed its input")
		}
		items = next
		if len(items) != len(model) || !slices.IsSortedFunc(items, func(a, b *resource.Object) int { return compareKeys(a.Key(), b.Key()) }) {
			t.Fatalf("round %d: %d items, want %d in order", round, len(items), len(model))
		}
		for key, o := range model {
			if (Snapshot{Items: items}).Get(key) != o {
				t.Fatalf("round %d: %s is missing", round, key)
			}
		}
	}
	if (Snapshot{Items: items}).Get(resource.Key{Namespace: "none", Name: "none"}) != nil {
		t.Error("found what is not there")
	}
}
