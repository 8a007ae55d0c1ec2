package resource

import (
	"slices"
	"testing"
)

func TestLabels(t *testing.T) {
	for _, c := range []struct{ met, want Labels }{
		{nil, nil},
		{Labels{{"a", "1"}}, Labels{{"a", "1"}}},
		{Labels{{"b", "1"}, {"a", "2"}, {"c", ""}}, Labels{{"a", "2"}, {"b", "1"}, {"c", ""}}},
		{Labels{{"a", "1"}, {"a", "2"}}, Labels{{"a", "2"}}},
		{Labels{{"b", "1"}, {"a", "1"}, {"b", "2"}, {"a", "2"}, {"b", "3"}}, Labels{{"a", "2"}, {"b", "3"}}},
	} {
		got := slices.Clone(c.met).sorted()
		if !slices.Equal(got, c.want) || cap(got) != len(got) {
			t.Errorf("%v became %v with room for %d", c.met, got, cap(got))
		}
		for _, l := range got {
			if value, found := got.Lookup(l.Key); !found || value != l.Value || got.Get(l.Key) != l.Value || !got.Has(l.Key) {
				t.Errorf("%v: %s is %q, %t", got, l.Key, value, found)
			}
		}
		if got.Has("") || got.Has("aa") || got.Get("z") != "" {
			t.Errorf("%v has more", got)
		}
	}
}
