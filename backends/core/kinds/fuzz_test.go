package kinds

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"portico/internal/testing/kindtest"
	"portico/resource/rest"
)

// FuzzWrite applies all functions of a row to bodies. They must not panic, defaulting must be
// idempotent, and the old object of an update must not change.
func FuzzWrite(f *testing.F) {
	all := allKinds()
	for i, k := range all {
		for _, o := range kindtest.Objects(f, "testdata/objects", k.GVR(k.Versions[0])) {
			body := kindtest.Encoded(o)
			f.Add(uint(i), body, body)
		}
	}
	f.Fuzz(func(t *testing.T, i uint, body, stored []byte) {
		k := all[i%uint(len(all))]
		read := func(data []byte) rest.Object {
			obj, _, err := k.Codec.Decode(data, jsonType, k.GVK("v1"), false)
			if err != nil {
				return nil
			}
			typed := obj.(rest.Object)
			if k.Strategy.Default != nil {
				k.Strategy.Default(typed)
			}
			return typed
		}
		obj, old := read(body), read(stored)
		if obj == nil || old == nil {
			return
		}
		if again := obj.DeepCopyObject().(rest.Object); k.Strategy.Default != nil {
			if k.Strategy.Default(again); !equality.Semantic.DeepEqual(again, obj) {
				t.Errorf("%s: defaults are not stable", k.Resource)
			}
		}
		before, s := old.DeepCopyObject(), k.Strategy
		if s.PrepareUpdate != nil {
			s.PrepareUpdate(t.Context(), obj, old)
		}
		if s.ValidateUpdate != nil {
			s.ValidateUpdate(t.Context(), obj, old)
		}
		if s.Warnings != nil {
			s.Warnings(t.Context(), obj, old)
		}
		if s.SpecChanged != nil {
			s.SpecChanged(obj, old)
		}
		if !equality.Semantic.DeepEqual(before, old) {
			t.Errorf("%s: the old object was changed", k.Resource)
		}
		if s.PrepareCreate != nil {
			s.PrepareCreate(t.Context(), obj)
		}
		if s.Validate != nil {
			s.Validate(t.Context(), obj)
		}
		if k.Cells == nil {
			return
		}
		if _, err := k.Cells(obj); err != nil {
			t.Error(err)
		}
	})
}
