package resource

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector selects objects by labels and fields. The zero Selector matches every object. It
// is immutable and safe for concurrent use.
type Selector struct {
	// Labels nil: all objects.
	Labels labels.Selector
	// Fields nil: all objects.
	Fields fields.Selector
	// Extract returns the selectable fields of the kind other than metadata.name and
	// metadata.namespace; nil if it has none. It returns nil for an object that it cannot read.
	Extract func(*Object) map[string]string
	// Convert, if not nil, must have succeeded for objects before Extract: it converts many in
	// one call of a webhook.
	Convert func([]*Object) error
	// Names are the fields that objects cache; others are extracted for each use.
	Names []string
	// By is the comparable key of Extract and Names: selectors with the same By share what
	// an object caches. Objects keep it in memory.
	By any
}

// Empty reports whether the selector matches every object.
func (s Selector) Empty() bool {
	return (s.Labels == nil || s.Labels.Empty()) && (s.Fields == nil || s.Fields.Empty())
}

// PreparedTogether is how many objects of a list are prepared together, for a selector or for
// encoding.
const PreparedTogether = 500

// Prepare reads the fields of objects for Matches and Event, which must follow it if objects
// may have to be converted. Its error is that of the list or the watch.
func (s Selector) Prepare(objects []*Object) error {
	if s.Convert == nil {
		return nil
	}
	needed := slices.DeleteFunc(slices.Clone(objects), func(o *Object) bool {
		cached := o.fields.Load()
		return cached != nil && cached.by == s.By || s.Labels != nil && !s.Labels.Matches(o.Labels)
	})
	for batch := range slices.Chunk(needed, PreparedTogether) {
		if err := s.Convert(batch); err != nil {
			return err
		}
		for _, o := range batch {
			s.cache(o)
		}
	}
	return nil
}

// Matches reports whether the selector selects the object.
func (s Selector) Matches(o *Object) bool {
	if s.Labels != nil && !s.Labels.Empty() && !s.Labels.Matches(o.Labels) {
		return false
	}
	return s.Fields == nil || s.Fields.Empty() || s.Fields.Matches(objectFields{o, s})
}

// Name returns the name that the field selector requires (metadata.name=x), if any.
func (s Selector) Name() (string, bool) {
	if s.Fields == nil {
		return "", false
	}
	return s.Fields.RequiresExactMatch(metav1.ObjectNameField)
}

// Namespace returns the namespace that the field selector requires (metadata.namespace=x),
// if any.
func (s Selector) Namespace() (string, bool) {
	if s.Fields == nil {
		return "", false
	}
	return s.Fields.RequiresExactMatch("metadata.namespace")
}

// cachedFields are the selectable fields of an object.
type cachedFields struct {
	by     any
	values []string // in the order of Selector.Names
}

// Field returns the value of a selectable field of the object, "" if it has none. Values are
// cached in the object for the next selector with the same By; Extract may run more than
// once.
func (s Selector) Field(o *Object, name string) string {
	switch {
	case name == metav1.ObjectNameField:
		return o.Name
	case name == "metadata.namespace":
		return o.Namespace
	case s.Extract == nil:
		return ""
	}
	at := slices.Index(s.Names, name)
	if at < 0 {
		return s.Extract(o)[name]
	}
	cached := o.fields.Load()
	if cached == nil || cached.by != s.By {
		cached = s.cache(o)
	}
	return cached.values[at]
}

// cache extracts the fields of the object and caches them in it if it can be read.
func (s Selector) cache(o *Object) *cachedFields {
	cached := &cachedFields{s.By, make([]string, len(s.Names))}
	values := s.Extract(o)
	for i, name := range s.Names {
		cached.values[i] = values[name]
	}
	if values != nil {
		o.fields.Store(cached)
	}
	return cached
}

// objectFields implements fields.Fields.
type objectFields struct {
	o *Object
	s Selector
}

func (f objectFields) Has(field string) bool   { return f.Get(field) != "" }
func (f objectFields) Get(field string) string { return f.s.Field(f.o, field) }

// Event returns the event that a change of one object is for a watch with this selector; ok
// is false for none. An object that begins to match is Added, and one that no longer matches
// is Deleted with its last matching state. prev is nil if the object did not exist, cur if
// it was deleted; rev is the revision of the change.
func (s Selector) Event(prev, cur *Object, rev int64) (e Event, ok bool) {
	was, is := prev != nil && s.Matches(prev), cur != nil && s.Matches(cur)
	switch {
	case is && was:
		return Event{Type: Modified, Object: cur, Revision: rev}, true
	case is:
		return Event{Type: Added, Object: cur, Revision: rev}, true
	case was:
		return Event{Type: Deleted, Object: prev.WithRevision(rev), Revision: rev}, true
	}
	return Event{}, false
}
