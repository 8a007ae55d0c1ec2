package managedfields

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
)

// ofWidget is a history of Widgets.
func ofWidget(t *testing.T, converter upstream.TypeConverter) *history {
	return &history{t: t, kind: widgets(converter)}
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
	next.SetGroupVersionKind(h.kind.gvk)
	return next
}

// A null has the type of the field: where a null is added or removed, the walk records
// what upstream's manager does, for types of one form and of several.
func TestOwnersOfNulls(t *testing.T) {
	values := []string{`null`, `"s"`, `1`, `{}`, `{"a":1}`, `{"a":null}`, `{"a":{"b":1}}`, `{"a":["v"]}`, `[]`, `["v"]`, `[{"name":"x"}]`}
	for _, c := range []struct {
		converter upstream.TypeConverter
		fields    []string
	}{
		{ownedConverter(t), []string{"either", "free", "env", "set", "byName"}},
		{upstream.NewDeducedTypeConverter(), []string{"x"}},
	} {
		recorded := 0
		for _, field := range c.fields {
			for _, was := range values {
				for _, is := range values {
					h := ofWidget(t, c.converter)
					h.step(h.widgetState(fmt.Sprintf(`{"text":"k",%q:%s}`, field, was)), "m", "", 0)
					if h.stored == nil {
						continue // no value of the type
					}
					h.step(h.widgetState(fmt.Sprintf(`{"text":"k",%q:%s}`, field, is)), "n", "", 1)
					recorded += h.recorded
				}
			}
		}
		if recorded < 20 {
			t.Errorf("recorded %d times", recorded)
		}
	}
}

// No manager owns the fields that identify an object. A record that says otherwise was
// not made by upstream's manager, which removes them with the next write.
func TestOwnersOfIdentity(t *testing.T) {
	for _, owned := range []string{
		`{"f:apiVersion":{}}`, `{"f:kind":{}}`, `{"f:metadata":{}}`, `{"f:metadata":{".":{}}}`, `{"f:metadata":{".":{},"f:labels":{"f:a":{}}}}`,
		`{"f:metadata":{"f:name":{},"f:labels":{"f:a":{}}}}`, `{"f:metadata":{"f:uid":{}},"f:spec":{"f:text":{}}}`, `{"f:metadata":{"f:managedFields":{}}}`,
		`{"f:metadata":{"f:generation":{}}}`, `{"f:metadata":{"f:resourceVersion":{}}}`, `{"f:metadata":{"f:namespace":{}}}`,
	} {
		for _, converter := range []upstream.TypeConverter{ownedConverter(t), upstream.NewDeducedTypeConverter()} {
			h := ofWidget(t, converter)
			h.step(h.widgetState(`{"text":"1"}`), "m", "", 0)
			var fields map[string]any
			if err := json.Unmarshal([]byte(owned), &fields); err != nil {
				t.Fatal(err)
			}
			rawRecord(h.stored.(*unstructured.Unstructured))[0].(map[string]any)["fieldsV1"] = fields
			h.step(h.widgetState(`{"text":"2"}`), "n", "", 1)
		}
	}
}
