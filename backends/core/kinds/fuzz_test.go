package kinds

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/internal/testing/kindtest"
	"portico/resource/rest"
)

// FuzzWrite applies all functions of a row to bodies. They must not panic, defaulting must be
// idempotent, and only PrepareUpdate may change the old object of an update.
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
		if obj, old := received(k, body), received(k, stored); obj != nil && old != nil {
			apply(t, k, obj, old)
		}
	})
}

// FuzzFields is FuzzWrite for valid objects with a few fields changed in their Go types: absent
// and empty structs, long lists, strange strings and quantities.
func FuzzFields(f *testing.F) {
	all := slices.DeleteFunc(allKinds(), (*rest.Kind).Virtual)
	objects := make([][]map[string]any, len(all))
	for i, k := range all {
		objects[i] = kindtest.Objects(f, "testdata/objects", k.GVR(k.Versions[0]))
		for j := range objects[i] {
			for seed := range 2 {
				choices := make([]byte, 24)
				for n := range choices {
					choices[n] = byte((n+1)*(seed+3)*37 + i*11 + j)
				}
				f.Add(uint(i), uint(j), choices, choices[:seed*4])
			}
		}
	}
	f.Fuzz(func(t *testing.T, i, j uint, changes, stored []byte) {
		i %= uint(len(all))
		k := all[i]
		base := kindtest.Encoded(objects[i][j%uint(len(objects[i]))])
		obj, old := received(k, base), received(k, base)
		kindtest.Change(obj, changes)
		kindtest.Change(old, stored)
		if old = again(k, old); old == nil || k.Strategy.Validate != nil && len(k.Strategy.Validate(t.Context(), old)) > 0 {
			old = received(k, base)
		}
		if obj = again(k, obj); obj != nil {
			apply(t, k, obj, old)
		}
	})
}

// received returns the object that a body has, with defaults; nil: it cannot be decoded.
func received(k *rest.Kind, body []byte) rest.Object {
	obj, _, err := k.Codec.Decode(body, jsonType, k.GVK(k.Versions[0]), false)
	if err != nil {
		return nil
	}
	typed := obj.(rest.Object)
	if k.Strategy.Default != nil {
		k.Strategy.Default(typed)
	}
	return typed
}

// again returns obj as a server receives it.
func again(k *rest.Kind, obj rest.Object) rest.Object {
	body, err := k.Codec.Encode(obj, k.GVK(k.Versions[0]), jsonType)
	if err != nil {
		return nil
	}
	return received(k, body)
}

// apply applies the functions of a row to a write of obj, on creation and over old.
func apply(t *testing.T, k *rest.Kind, obj, old rest.Object) {
	if again := obj.DeepCopyObject().(rest.Object); k.Strategy.Default != nil {
		if k.Strategy.Default(again); !equality.Semantic.DeepEqual(again, obj) {
			t.Errorf("%s: defaults are not stable", k.Resource)
		}
	}
	applyUpdate(t, k, &k.Strategy, obj.DeepCopyObject().(rest.Object), old)
	for _, sub := range k.Subresources {
		if sub.Strategy != nil {
			applyUpdate(t, k, sub.Strategy, obj.DeepCopyObject().(rest.Object), old)
		}
	}
	s := k.Strategy
	if s.PrepareCreate != nil {
		s.PrepareCreate(t.Context(), obj)
	}
	valid := s.Validate == nil || havePaths(t, k, s.Validate(t.Context(), obj))
	if s.Warnings != nil && valid {
		s.Warnings(t.Context(), obj, nil)
	}
	if k.Fields != nil {
		k.Fields(obj)
	}
	if k.Cells == nil {
		return
	}
	if _, err := k.Cells(obj); err != nil {
		t.Error(err)
	}
}

func applyUpdate(t *testing.T, k *rest.Kind, s *rest.Strategy, obj, old rest.Object) {
	if s.PrepareUpdate != nil {
		s.PrepareUpdate(t.Context(), obj, old)
	}
	before := old.DeepCopyObject()
	valid := s.ValidateUpdate == nil || havePaths(t, k, s.ValidateUpdate(t.Context(), obj, old))
	if s.Warnings != nil && valid {
		s.Warnings(t.Context(), obj, old)
	}
	s.ChangesGeneration(obj, old)
	if !equality.Semantic.DeepEqual(before, old) {
		t.Errorf("%s: the old object was changed", k.Resource)
	}
}

// havePaths reports whether there are no errors. It fails if one does not say which field is
// wrong.
func havePaths(t *testing.T, k *rest.Kind, errs field.ErrorList) bool {
	for _, err := range errs {
		if err.Field == "" || strings.Contains(err.Field, "<nil>") {
			t.Errorf("%s: an error without a path: %v", k.Resource, err)
		}
	}
	return len(errs) == 0
}
