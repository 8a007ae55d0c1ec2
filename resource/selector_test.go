package resource

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
)

// Selectors with one By extract once; those with another, and fields that are not among
// Names, extract for each use.
func TestSelectorFields(t *testing.T) {
	o := &Object{Header: Header{Name: "n", Namespace: "ns"}}
	extracted := 0
	s := Selector{
		Names: []string{"gone", "empty", "last"}, By: "one",
		Extract: func(*Object) map[string]string {
			extracted++
			return map[string]string{"empty": "", "last": "z", "other": "o"}
		},
	}
	for _, c := range []struct {
		name, value string
		extracted   int
	}{
		{"metadata.name", "n", 0}, {"metadata.namespace", "ns", 0}, {"last", "z", 1}, {"empty", "", 1}, {"gone", "", 1},
		{"other", "o", 2}, {"nothing", "", 3}, {"last", "z", 3},
	} {
		if value := s.Field(o, c.name); value != c.value || extracted != c.extracted {
			t.Errorf("%s: %q after %d extractions, want %q after %d", c.name, value, extracted, c.value, c.extracted)
		}
	}
	s.By = "two"
	if value := s.Field(o, "last"); value != "z" || extracted != 4 {
		t.Errorf("another By: %q after %d extractions", value, extracted)
	}
	s.Fields = fields.ParseSelectorOrDie("last=z,metadata.name=n,empty=")
	if !s.Matches(o) || extracted != 4 {
		t.Errorf("not selected, or extracted again: %d", extracted)
	}
	if value := (Selector{}).Field(o, "last"); value != "" {
		t.Errorf("a field without Extract: %q", value)
	}
}
