package loop

import (
	"slices"
	"testing"

	"portico/resource"
)

// Removed has what is gone and what is there with another uid, in order, and nothing that has only
// changed or is new.
func TestRemoved(t *testing.T) {
	t.Parallel()
	object := func(namespace, name, uid string) *resource.Object {
		return &resource.Object{Header: resource.Header{Namespace: namespace, Name: name, UID: uid}}
	}
	same := object("b", "same", "1")
	old := Snapshot{Items: []*resource.Object{object("a", "gone", "1"), object("b", "again", "1"), object("b", "changed", "1"), same, object("z", "last", "1")}}
	now := Snapshot{Items: []*resource.Object{object("a", "first", "1"), object("b", "again", "2"), object("b", "changed", "1"), object("b", "new", "1"), same}}
	var got []string
	for _, o := range now.Removed(old) {
		got = append(got, o.Name)
	}
	if want := []string{"gone", "again", "last"}; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
	if all := (Snapshot{}).Removed(old); len(all) != len(old.Items) || len(old.Removed(old)) != 0 {
		t.Errorf("%d of all, %d of none", len(all), len(old.Removed(old)))
	}
}
