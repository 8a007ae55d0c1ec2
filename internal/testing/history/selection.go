package history

import (
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
)

// Namespaces are those of records: prefixes of each other that sort differently as names and as paths.
func Namespaces() []string { return []string{"a", "a-b", "ab"} }

func names() []string { return []string{"n", "n-1", "n1", "n2", "n3", "n4", "n5"} }

func randomKey(rnd *rand.Rand) resource.Key {
	return resource.Key{Namespace: Namespaces()[rnd.IntN(3)], Name: names()[rnd.IntN(7)]}
}

// selection is the selection of a reader or a watcher.
type selection struct {
	text      string
	namespace string
	selector  resource.Selector
	// has reports whether it selects an object.
	has func(f *facts) bool
	// sample returns an object that it selects.
	sample resource.Key
	traits traits
}

// tierReader identifies Tier as resource.Selector.By.
type tierReader struct{}

// randomSelection returns a random selection, sometimes within a namespace.
func randomSelection(rnd *rand.Rand) *selection {
	key := randomKey(rnd)
	s := &selection{text: "all", sample: key, has: func(*facts) bool { return true }}
	switch rnd.IntN(9) {
	case 0, 1:
	case 2:
		s.byLabel("color=red", func(f *facts) bool { return f.color == "red" })
		s.traits.color = "red"
	case 3:
		s.byLabel("color!=red", func(f *facts) bool { return f.color != "red" })
	case 4:
		s.byLabel("color", func(f *facts) bool { return f.color != "" })
		s.traits.color = "blue"
	case 5:
		s.byLabel("color in (red,blue),app=history", func(f *facts) bool { return f.color != "" })
		s.traits.color = "red"
	case 6:
		s.byField(fields.OneTermEqualSelector("metadata.name", key.Name), func(f *facts) bool { return f.key.Name == key.Name })
	case 7:
		s.byField(fields.OneTermEqualSelector(TierField, "gold"), func(f *facts) bool { return f.tier == "gold" })
		s.traits.tier = "gold"
	case 8:
		s.byField(fields.OneTermNotEqualSelector(TierField, "gold"), func(f *facts) bool { return f.tier != "gold" })
	}
	if rnd.IntN(2) == 0 {
		s.within(key.Namespace)
	}
	return s
}

func (s *selection) byLabel(text string, has func(*facts) bool) {
	parsed, err := labels.Parse(text)
	if err != nil {
		panic(err) // all texts are in this file
	}
	s.text, s.has, s.selector.Labels = text, has, parsed
}

func (s *selection) byField(f fields.Selector, has func(*facts) bool) {
	s.text, s.has = f.String(), has
	s.selector.Fields, s.selector.Extract, s.selector.By = f, Tier, tierReader{}
	s.selector.Names = []string{TierField}
}

func (s *selection) within(namespace string) {
	has := s.has
	s.text, s.namespace = s.text+" in "+namespace, namespace
	s.has = func(f *facts) bool { return f.key.Namespace == namespace && has(f) }
}
