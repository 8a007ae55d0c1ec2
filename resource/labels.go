package resource

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Label is one label of an object.
type Label struct{ Key, Value string }

// Labels are the labels of an object in the order of their keys; nil: none. For the few
// labels of most objects, a map takes three times the memory and is slower to search.
type Labels []Label

var _ labels.Labels = Labels(nil)

// Lookup implements labels.Labels.
func (l Labels) Lookup(key string) (value string, found bool) {
	at, found := slices.BinarySearchFunc(l, key, func(have Label, key string) int { return strings.Compare(have.Key, key) })
	if !found {
		return "", false
	}
	return l[at].Value, true
}

// Get implements labels.Labels.
func (l Labels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// Has implements labels.Labels.
func (l Labels) Has(key string) bool {
	_, found := l.Lookup(key)
	return found
}

// sorted returns labels in the order of their keys, without spare capacity. The last of
// several with the same key counts, as in decoders.
func (l Labels) sorted() Labels {
	if !slices.IsSortedFunc(l, func(a, b Label) int { return strings.Compare(a.Key, b.Key) }) {
		slices.SortStableFunc(l, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	}
	kept := 0
	for i := range l {
		if i > 0 && l[i].Key == l[kept-1].Key {
			kept--
		}
		l[kept] = l[i]
		kept++
	}
	if kept < cap(l) {
		return append(make(Labels, 0, kept), l[:kept]...)
	}
	return l
}
