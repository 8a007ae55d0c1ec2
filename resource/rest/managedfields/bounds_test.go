package managedfields

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func shown(obj any) string {
	data, err := json.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(data)
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

func TestWideObjectsAreRejected(t *testing.T) {
	types := &boundedTypes{TypeConverter: ownedConverter(t)}
	if _, err := types.ObjectToTyped(wideWidget(maxMapFields, maxNamedItems)); err != nil {
		t.Error(err)
	}
	for path, u := range map[string]*unstructured.Unstructured{"spec.env": wideWidget(maxMapFields+1, 1), "spec.set": wideWidget(1, maxNamedItems+1)} {
		_, err := types.ObjectToTyped(u)
		var wide *TooManyError
		if !errors.As(err, &wide) || wide.path != path || types.refused != wide {
			t.Errorf("error %v, want one for %s", err, path)
		}
	}
}
