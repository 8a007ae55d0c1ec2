package managedfields

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	kjson "sigs.k8s.io/json"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// allOrdered is a TypeConverter that orders every map.
type allOrdered struct{ upstream.TypeConverter }

func (t allOrdered) ObjectToTyped(obj runtime.Object, opts ...smdtyped.ValidationOptions) (*smdtyped.TypedValue, error) {
	v, err := t.TypeConverter.ObjectToTyped(obj, opts...)
	if err != nil {
		return nil, err
	}
	return smdtyped.AsTyped(ordered{v.AsValue()}, v.Schema(), v.TypeRef(), opts...)
}

func shown(obj any) string {
	data, err := json.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Upstream's manager records the same with ordered maps as without.
func TestOrderedMapsAreTheSame(t *testing.T) {
	plain := ownedConverter(t)
	k := widgets(plain)
	var objects []*unstructured.Unstructured
	for _, data := range slices.Sorted(maps.Keys(newObjects)) {
		u := &unstructured.Unstructured{}
		if !newObjects[data] || kjson.UnmarshalCaseSensitivePreserveInts([]byte(data), &u.Object) != nil {
			continue
		}
		u.SetName("a")
		u.SetGroupVersionKind(k.gvk)
		objects = append(objects, u)
	}
	written := 0
	for i, live := range objects {
		next, patch := objects[(i+1)%len(objects)].DeepCopy(), objects[(i+2)%len(objects)]
		next.SetUID("u")
		var results []string
		for _, types := range []upstream.TypeConverter{plain, allOrdered{plain}} {
			codec := versions{k.codec}
			m, err := upstream.NewDefaultCRDFieldManager(types, codec, codec, codec, k.gvk, k.gvk.GroupVersion(), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			record := func(obj runtime.Object, err error) {
				if err == nil {
					written++
					for _, entry := range rawRecord(obj.(*unstructured.Unstructured)) {
						entry.(map[string]any)["time"] = "2026-01-01T00:00:00Z"
					}
				}
				results = append(results, shown(obj), fmt.Sprint(err != nil))
			}
			updated, err := m.Update(live.DeepCopy(), next.DeepCopy(), "m")
			record(updated, err)
			if err == nil {
				record(m.Apply(updated.DeepCopyObject(), patch.DeepCopy(), "n", true))
			}
		}
		if half := len(results) / 2; !reflect.DeepEqual(results[:half], results[half:]) {
			t.Fatalf("ordered %s\nplain %s", results[half:], results[:half])
		}
	}
	if written < 20 {
		t.Errorf("%d writes", written)
	}
}

// wideWidget returns a Widget with that many fields of a map and items of a list.
func wideWidget(fields, items int) *unstructured.Unstructured {
	env, set := map[string]any{}, []any{}
	for i := range fields {
		env[fmt.Sprintf("k%d", i)] = map[string]any{"a": "x"}
	}
	for i := range items {
		set = append(set, int64(items-i))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a", "uid": "u"},
		"spec": map[string]any{"env": env, "set": set},
	}}
}

func TestWideObjectsAreOrderedOrRejected(t *testing.T) {
	types := &boundedTypes{TypeConverter: ownedConverter(t)}
	keysOf := func(u *unstructured.Unstructured) (keys []string) {
		v, err := types.ObjectToTyped(u)
		if err != nil {
			t.Fatal(err)
		}
		spec, _ := v.AsValue().AsMap().Get("spec")
		env, _ := spec.AsMap().Get("env")
		env.AsMap().Iterate(func(key string, _ value.Value) bool {
			keys = append(keys, key)
			return true
		})
		return keys
	}
	if keys := keysOf(wideWidget(wideMap+1, maxNamedItems)); !isSorted(keys) {
		t.Error("a wide map is not in order")
	}
	_, err := types.ObjectToTyped(wideWidget(1, maxNamedItems+1))
	var wide *TooManyError
	if !errors.As(err, &wide) || wide.path != "spec.set" || types.refused != wide {
		t.Errorf("error %v", err)
	}
}

func isSorted(keys []string) bool {
	for i := 1; i < len(keys); i++ {
		if keys[i-1] > keys[i] {
			return false
		}
	}
	return len(keys) > 0
}

func TestWideRecordsAreRejected(t *testing.T) {
	types := ownedConverter(t)
	w := widgets(types).tracker("m")
	nodes := func(n int, name string, in fieldTree) fieldTree {
		fields := fieldTree{}
		for i := range n {
			fields[fmt.Sprintf(name, i)] = in
		}
		return fields
	}
	spec := func(name string, fields fieldTree) fieldTree { return fieldTree{"f:spec": fieldTree{name: fields}} }
	tests := map[string]struct {
		fields fieldTree
		owners int
		want   bool
	}{
		"fields of a map":      {spec("f:env", nodes(maxNamedItems+1, "f:k%d", fieldTree{})), 1, true},
		"items":                {spec("f:set", nodes(maxNamedItems, "v:%d", fieldTree{})), 1, true},
		"too many items":       {spec("f:set", nodes(maxNamedItems+1, "v:%d", fieldTree{})), 1, false},
		"a changed type":       {spec("f:whole", nodes(10, "f:k%d", fieldTree{})), 1, true},
		"a large changed type": {spec("f:whole", nodes(maxNamedItems, "f:k%d", fieldTree{})), 1, false},
		"owners":               {spec("f:text", fieldTree{}), MaxEntries, true},
		"too many owners":      {spec("f:text", fieldTree{}), MaxEntries + 1, false},
	}
	for name, test := range tests {
		u := wideWidget(1, 1)
		var record []any
		var entries []metav1.ManagedFieldsEntry
		raw := &metav1.FieldsV1{}
		raw.SetRawBytes([]byte(shown(test.fields)))
		for range test.owners {
			record = append(record, map[string]any{"manager": "m", "apiVersion": "example.com/v1", "fieldsV1": test.fields})
			entries = append(entries, metav1.ManagedFieldsEntry{Manager: "m", APIVersion: "example.com/v1", FieldsV1: raw})
		}
		u.Object["metadata"].(map[string]any)["managedFields"] = record
		typed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		typed.ManagedFields = entries
		for _, obj := range []Object{u, typed} {
			err := w.boundRecord(types, obj)
			var wide *TooManyError
			if errors.As(err, &wide) == test.want || err != nil && !strings.HasPrefix(wide.Error(), recordPath) {
				t.Errorf("%s of a %T: %v", name, obj, err)
			}
		}
	}
}
