package rest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"portico/resource"
)

// allOrdered has upstream's tracker see the fields of every map in order.
type allOrdered struct{ managedfields.TypeConverter }

func (t allOrdered) ObjectToTyped(obj runtime.Object, opts ...smdtyped.ValidationOptions) (*smdtyped.TypedValue, error) {
	v, err := t.TypeConverter.ObjectToTyped(obj, opts...)
	if err != nil {
		return nil, err
	}
	return smdtyped.AsTyped(ordered{v.AsValue()}, v.Schema(), v.TypeRef(), opts...)
}

// Upstream's tracker does the same with maps in order as without.
func TestOrderedMapsAreTheSame(t *testing.T) {
	plain := ownedConverter(t)
	k := widgetKind("v1")
	writeWith := func(c managedfields.TypeConverter) *managedfields.FieldManager {
		codec := versions{k.Codec.(Versioned)}
		m, err := managedfields.NewDefaultCRDFieldManager(c, codec, codec, codec, k.GVK("v1"), k.GVK("v1").GroupVersion(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	applied := 0
	for seed := range uint64(150) {
		c := &choices{randomChoices(seed)}
		object := func() *unstructured.Unstructured {
			u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}}}
			u.SetGroupVersionKind(k.GVK("v1"))
			for range 6 {
				c.change(u.Object)
			}
			return u
		}
		live, next, patch := object(), object(), object()
		next.SetUID("u")
		var results []string
		for _, types := range []managedfields.TypeConverter{plain, allOrdered{plain}} {
			m := writeWith(types)
			text := func(obj runtime.Object, err error) {
				if err == nil {
					applied++
					for _, entry := range rawOwners(obj.(*unstructured.Unstructured)) {
						entry.(map[string]any)["time"] = ""
					}
				}
				results = append(results, shown(obj), fmt.Sprint(err != nil))
			}
			updated, err := m.Update(live.DeepCopy(), next.DeepCopy(), "m")
			text(updated, err)
			if err != nil {
				updated = live
			}
			text(m.Apply(updated.DeepCopyObject(), patch.DeepCopy(), "n", seed%2 == 0))
		}
		if half := len(results) / 2; !reflect.DeepEqual(results[:half], results[half:]) {
			t.Fatalf("in order %s\nelse %s", results[half:], results[:half])
		}
	}
	if applied < 200 {
		t.Errorf("%d writes", applied)
	}
}

// wideWidget is a Widget with that many fields of a map and items of a list.
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

func TestWideObjects(t *testing.T) {
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
	var wide *errTooWide
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

func TestWideRecords(t *testing.T) {
	k := widgetKind("v1")
	types := ownedConverter(t)
	w := newWrite(New(Config{}), &resource.Action{IsResource: true, Group: "example.com", Version: "v1", Resource: "widgets", Namespace: "default"}, &Resource{Kind: k}, nil, writeOptions{owner: "m", object: &metav1.UpdateOptions{}})
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
		"owners":               {spec("f:text", fieldTree{}), maxOwners, true},
		"too many owners":      {spec("f:text", fieldTree{}), maxOwners + 1, false},
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
		typed := bare("a")
		typed.ManagedFields = entries
		for _, obj := range []Object{u, typed} {
			err := w.boundRecord(types, obj)
			var wide *errTooWide
			if errors.As(err, &wide) == test.want || err != nil && !strings.HasPrefix(wide.Error(), ownersPath) {
				t.Errorf("%s of a %T: %v", name, obj, err)
			}
		}
	}
}

// What has owners of too much can be updated, but not applied.
func TestApplyToWideLists(t *testing.T) {
	t.Parallel()
	b := newOwnBench(t)
	b.create(bare("a"))
	wide := bare("a")
	var items []string
	for i := range maxNamedItems + 1 {
		name := fmt.Sprintf("example.com/f%d", i)
		wide.Finalizers = append(wide.Finalizers, name)
		items = append(items, fmt.Sprintf(`"v:\"%s\"":{}`, name))
	}
	const refused = `ConfigMap "a" is invalid: metadata.finalizers: Too many: 5001: must have at most 5000 items`
	patch := cmIntent(`,"metadata":{"name":"a","finalizers":["` + strings.Join(wide.Finalizers, `","`) + `"]}`)
	b.apply(configMapA, "m", patch).want(422, refused)
	// It was stored before finalizers were bounded.
	record := metav1.ManagedFieldsEntry{Manager: "n", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1"}
	record.FieldsV1 = &metav1.FieldsV1{}
	record.FieldsV1.SetRawBytes([]byte(`{"f:metadata":{"f:finalizers":{` + strings.Join(items, ",") + `}}}`))
	if _, err := Modify(t.Context(), b.configMaps, resource.Key{Namespace: "default", Name: "a"}, func(cm *corev1.ConfigMap) error {
		cm.Finalizers, cm.ManagedFields = wide.Finalizers, []metav1.ManagedFieldsEntry{record}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got := b.send("PUT", configMapA+"?fieldManager=n", wide).want(200, "")
	b.apply(configMapA, "m", cmIntent(`,"metadata":{"name":"a"},"data":{"x":"y"}`)).want(422,
		`ConfigMap "a" is invalid: metadata.managedFields: Too many: 5001: must have at most 5000 items`)
	// Beyond one walk, what was known of owners stays.
	wide.Data["k"] = "w"
	sent := b.send("GET", configMapA, nil).configMap().ManagedFields
	sent[0].Manager = "somebody else"
	wide.ManagedFields = sent
	if after := b.send("PUT", configMapA+"?fieldManager=n", wide).want(200, "").owners(); after != got.owners() {
		t.Errorf("owners %.300s", after)
	}
}
