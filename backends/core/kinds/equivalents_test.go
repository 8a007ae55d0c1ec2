package kinds

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/kindtest"
	"portico/resource/rest"
)

// Rows of the same stored objects are each other's equivalents, so that admission rules for one of them apply to all, and
// the Codec of each converts to the group/versions of all and back.
func TestRowsOfTheSameObjectsAreEquivalent(t *testing.T) {
	t.Parallel()
	byPath := map[string][]*rest.Kind{}
	for _, k := range allKinds() {
		if !k.Virtual() {
			byPath[k.StoragePath()] = append(byPath[k.StoragePath()], k)
		}
	}
	if len(byPath["events"]) != 2 {
		t.Errorf("%d rows of events, want 2", len(byPath["events"]))
	}
	for path, rows := range byPath {
		var all []schema.GroupVersion
		for _, k := range rows {
			for _, version := range k.Versions {
				all = append(all, k.GVK(version).GroupVersion())
			}
		}
		for _, k := range rows {
			var known []schema.GroupVersion
			for _, version := range k.Versions {
				known = append(known, k.GVK(version).GroupVersion())
			}
			if k.Equivalents != nil {
				known = append(known, k.Equivalents("")...)
			}
			for _, gv := range all {
				if !slices.Contains(known, gv) {
					t.Errorf("%s: the row of %s does not know %s", path, k.GroupResource(), gv)
				}
			}
			if len(rows) > 1 {
				convertsTo(t, k, known)
			}
		}
	}
}

// convertsTo converts the valid objects of a kind to other group/versions and back.
func convertsTo(t *testing.T, k *rest.Kind, all []schema.GroupVersion) {
	t.Helper()
	own := k.GVK(k.Versions[0])
	objects := kindtest.Objects(t, "testdata/objects", own.GroupVersion().WithResource(k.Resource))
	if len(objects) == 0 {
		t.Errorf("no objects of %s", own)
	}
	for _, o := range objects {
		hub, _, err := k.Codec.Decode(kindtest.Encoded(o), jsonType, own, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, gv := range all {
			data, err := k.Codec.Encode(hub, gv.WithKind(k.Kind), jsonType)
			if err != nil {
				t.Errorf("encode as %s: %v", gv, err)
				continue
			}
			again, _, err := k.Codec.Decode(data, jsonType, gv.WithKind(k.Kind), false)
			if err != nil || !equality.Semantic.DeepEqual(hub, again) {
				t.Errorf("%s %s by %s: %v, %v, want %v", own, kindtest.NameOf(o), gv, again, err, hub)
			}
		}
	}
}
