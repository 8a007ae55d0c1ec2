package rest

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// ofWidget is a history of Widgets.
func ofWidget(t *testing.T, converter managedfields.TypeConverter) *history {
	k := widgetKind("v1")
	k.Ownership = func() (managedfields.TypeConverter, error) { return converter, nil }
	return &history{t: t, kind: k}
}

// widgetState is a Widget with that text as its spec; the record is left alone.
func (h *history) widgetState(spec string) *unstructured.Unstructured {
	h.t.Helper()
	next := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}}}
	if h.stored != nil {
		next = h.stored.DeepCopyObject().(*unstructured.Unstructured)
	}
	var content map[string]any
	if err := json.Unmarshal([]byte(spec), &content); err != nil {
		h.t.Fatal(err)
	}
	next.Object["spec"] = content
	next.SetGroupVersionKind(h.kind.GVK("v1"))
	return next
}

// A null is a value of whatever type it stands for: what becomes of ownership
// where a null comes or goes is as upstream's tracker has it, by types that have
// one form and by those that have several.
func TestOwnersOfNulls(t *testing.T) {
	values := []string{`null`, `"s"`, `1`, `{}`, `{"a":1}`, `{"a":null}`, `{"a":{"b":1}}`, `{"a":["v"]}`, `[]`, `["v"]`, `[{"name":"x"}]`}
	for _, c := range []struct {
		converter managedfields.TypeConverter
		fields    []string
	}{
		{ownedConverter(t), []string{"either", "free", "env", "set", "byName"}},
		{managedfields.NewDeducedTypeConverter(), []string{"x"}},
	} {
		told := 0
		for _, field := range c.fields {
			for _, was := range values {
				for _, is := range values {
					h := ofWidget(t, c.converter)
					h.step(h.widgetState(fmt.Sprintf(`{"text":"k",%q:%s}`, field, was)), "m", "", 0)
					if h.stored == nil {
						continue // no value of the type
					}
					h.step(h.widgetState(fmt.Sprintf(`{"text":"k",%q:%s}`, field, is)), "n", "", 1)
					told += h.told
				}
			}
		}
		if told < 20 {
			t.Errorf("told %d times", told)
		}
	}
}

// What identifies an object belongs to nobody. A record that says otherwise was
// not made by upstream's tracker, which takes it out with the next write.
func TestOwnersOfIdentity(t *testing.T) {
	for _, owned := range []string{
		`{"f:apiVersion":{}}`, `{"f:kind":{}}`, `{"f:metadata":{}}`, `{"f:metadata":{".":{}}}`, `{"f:metadata":{".":{},"f:labels":{"f:a":{}}}}`,
		`{"f:metadata":{"f:name":{},"f:labels":{"f:a":{}}}}`, `{"f:metadata":{"f:uid":{}},"f:spec":{"f:text":{}}}`, `{"f:metadata":{"f:managedFields":{}}}`,
		`{"f:metadata":{"f:generation":{}}}`, `{"f:metadata":{"f:resourceVersion":{}}}`, `{"f:metadata":{"f:namespace":{}}}`,
	} {
		for _, converter := range []managedfields.TypeConverter{ownedConverter(t), managedfields.NewDeducedTypeConverter()} {
			h := ofWidget(t, converter)
			h.step(h.widgetState(`{"text":"1"}`), "m", "", 0)
			var fields map[string]any
			if err := json.Unmarshal([]byte(owned), &fields); err != nil {
				t.Fatal(err)
			}
			rawOwners(h.stored.(*unstructured.Unstructured))[0].(map[string]any)["fieldsV1"] = fields
			h.step(h.widgetState(`{"text":"2"}`), "n", "", 1)
		}
	}
}
