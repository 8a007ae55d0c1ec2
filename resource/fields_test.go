package resource

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
)

// Selectors of one reader extract once; another reader, and a name that is not
// among those it gives, extract for themselves.
func TestSelectorFields(t *testing.T) {
	o := &Object{Header: Header{Name: "n", Namespace: "ns"}}
	asked := 0
	long := strings.Repeat("x", 300)
	s := Selector{
		Names: []string{"gone", "empty", "long", "last"}, By: "one",
		Extract: func(*Object) map[string]string {
			asked++
			return map[string]string{"empty": "", "long": long, "last": "z", "other": "o"}
		},
	}
	for _, c := range []struct {
		name, value string
		ok          bool
		asked       int
	}{
		{"metadata.name", "n", true, 0},
		{"metadata.namespace", "ns", true, 0},
		{"last", "z", true, 1},
		{"long", long, true, 1},
		{"empty", "", true, 1},
		{"gone", "", false, 1},
		{"other", "o", true, 2},
		{"nothing", "", false, 3},
		{"long", long, true, 3},
	} {
		if value, ok := s.Field(o, c.name); value != c.value || ok != c.ok || asked != c.asked {
			t.Errorf("%s: %.10q %v after %d extractions, want %.10q %v after %d", c.name, value, ok, asked, c.value, c.ok, c.asked)
		}
	}
	s.By = "two"
	if _, ok := s.Field(o, "last"); !ok || asked != 4 {
		t.Errorf("another reader: %v after %d extractions", ok, asked)
	}
	s.Fields = fields.ParseSelectorOrDie("last=z,metadata.name=n,empty=")
	if !s.Matches(o) || asked != 4 {
		t.Errorf("not chosen, or extracted again: %d", asked)
	}
	if _, ok := (Selector{}).Field(o, "last"); ok {
		t.Error("a field that nobody extracts")
	}
}

// What is kept of an object's fields is not much more than their values.
func TestKeptFieldsAreSmall(t *testing.T) {
	const objects, names = 5000, 13
	s := Selector{By: "reader"}
	for i := range names {
		s.Names = append(s.Names, fmt.Sprintf("involvedObject.field%d", i))
	}
	s.Extract = func(o *Object) map[string]string {
		out := map[string]string{}
		for _, name := range s.Names {
			out[name] = strings.Clone("0123456789")
		}
		return out
	}
	all := make([]Object, objects)
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for i := range all {
		if value, ok := s.Field(&all[i], s.Names[names-1]); value != "0123456789" || !ok {
			t.Fatal(value, ok)
		}
	}
	if each := (heap() - before) / objects; each > 300 {
		t.Errorf("%d bytes are kept of each object for %d bytes of values", each, names*10)
	}
	runtime.KeepAlive(all)
}
