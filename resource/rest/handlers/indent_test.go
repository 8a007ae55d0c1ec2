package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsyaml "sigs.k8s.io/yaml"

	"portico/resource"
	"portico/resource/rest/render"
)

// deep is an object with something far inside it.
func deep(depth int, inside string) []byte {
	return []byte(`{"kind":"ConfigMap","apiVersion":"v1","a":` + strings.Repeat(`{"a":`, depth) + inside + strings.Repeat("}", depth) + "}")
}

// growing are objects of some 30 KB of which indentation would make ten
// megabytes or more.
func growing() map[string][]byte {
	return map[string][]byte{
		"numbers": deep(300, "["+strings.Repeat("1,", 20000)+"1]"),
		"arrays":  []byte(`{"a":` + strings.Repeat("[", 300) + strings.Repeat("1,", 20000) + "1" + strings.Repeat("]", 300) + "}"),
	}
}

// ofWords are those that only YAML breaks into lines.
func ofWords() map[string][]byte {
	return map[string][]byte{
		"words":      deep(300, `"`+strings.Repeat("w ", 20000)+`"`),
		"breaks":     deep(300, `"`+strings.Repeat(`w\n`, 20000)+`"`),
		"characters": deep(300, `"`+strings.Repeat("w\u0085\u2028", 20000)+"\u007f\ufeff"+`"`),
	}
}

// An object that indentation would make too long is sent in one line, as itself
// and in a list, and is the same object.
func TestDeepObjectsAreNotIndented(t *testing.T) {
	for name, data := range growing() {
		for form, f := range map[string]format{"pretty": {pretty: true}, "YAML": {media: mediaYAML}} {
			checkBounded(t, name+" "+form, data, f)
		}
	}
	for name, data := range ofWords() {
		checkBounded(t, name+" YAML", data, format{media: mediaYAML})
		if b, err := finish(data, format{pretty: true}); err != nil || !bytes.Contains(b.data, []byte("\n    \"a\": {\n")) {
			t.Errorf("%s: a text is no reason not to indent: %v, %.50s", name, err, b.data)
		}
	}
}

func checkBounded(t *testing.T, name string, data []byte, f format) {
	t.Helper()
	bound := len(data)*render.MaxGrowth + render.FreeGrowth
	b, err := finish(data, f)
	if err != nil || b.size() > bound {
		t.Errorf("%s: %d bytes became %d, want at most %d (%v)", name, len(data), b.size(), bound, err)
		return
	}
	sameAs(t, name, b.data, data)

	d, err := newDocument(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"}, metav1.ListMeta{ResourceVersion: "1"},
		func(o *resource.Object) ([]byte, error) { return o.Data, nil })
	if err != nil {
		t.Fatal(err)
	}
	var out collected
	e := d.as(f)
	plain := []byte(`{"kind":"ConfigMap","apiVersion":"v1"}`)
	for i, step := range []func() error{
		func() error { return e.begin(&out, 0) },
		func() error { return e.item(&out, &resource.Object{Data: data}, true) },
		func() error { return e.item(&out, &resource.Object{Data: plain}, false) },
		func() error { return e.item(&out, &resource.Object{Data: data}, false) },
		func() error { return e.end(&out, false) },
	} {
		if err := step(); err != nil {
			t.Fatalf("%s: step %d of the list: %v", name, i, err)
		}
	}
	if len(out) > 2*bound {
		t.Errorf("%s: a list of %d bytes became %d", name, 2*len(data), len(out))
		return
	}
	sameAs(t, name+" in a list", out,
		fmt.Appendf(nil, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s,%s,%s]}`, data, plain, data))
}

// collected is an output that keeps everything.
type collected []byte

func (c *collected) write(p []byte) error       { *c = append(*c, p...); return nil }
func (c *collected) writeString(p string) error { *c = append(*c, p...); return nil }

func sameAs(t *testing.T, name string, got, want []byte) {
	t.Helper()
	back, err := sigsyaml.YAMLToJSON(got)
	if json.Valid(got) {
		back, err = got, nil
	}
	if err != nil {
		t.Errorf("%s: the answer cannot be read: %v", name, err)
		return
	}
	if !sameValues(t, back, want) {
		t.Errorf("%s: it is another object: %.100s", name, got)
	}
}

// What is indented in one case and not in the other differs by nothing else.
func TestIndentationBounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		data   []byte
		pretty bool
	}{
		{"a common object", []byte(`{"metadata":{"name":"a","labels":{"b":"c"}},"data":{},"list":[1,2,[]]}`), true},
		{"a deep, small one", deep(200, "[1,2,3]"), true},
		{"a large, flat one", []byte(`{"a":[` + strings.Repeat("1,", 700000) + "1]}"), true},
		{"no longer than what is free", deep(1500, "1"), false},
	} {
		b, err := finish(c.data, format{pretty: true})
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := json.Indent(&want, c.data, "", "  "); err != nil {
			t.Fatal(err)
		}
		if got := bytes.Equal(b.data, want.Bytes()); got != c.pretty {
			t.Errorf("%s (%d bytes, %d indented): indented %v, want %v", c.name, len(c.data), want.Len(), got, c.pretty)
		}
	}
}

// sameValues compares documents whose numbers may be written differently.
func sameValues(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	for data, v := range map[*[]byte]*any{&a: &x, &b: &y} {
		if err := json.Unmarshal(*data, v); err != nil {
			t.Fatalf("%v in %s", err, *data)
		}
	}
	return reflect.DeepEqual(x, y)
}
