package managedfields

import (
	"maps"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// recordUpdate is Update for the common case: every entry was written in the version
// of this write, no field has changed its type, and the client does not change the
// record. One walk over both states finds what has changed, and only the entries that
// this concerns are written anew. It returns false for any other case, and has recorded
// nothing then.
func (t *Tracker) recordUpdate(obj, old Object) (bool, error) {
	if t.Codec == nil || t.Projected || t.Codec.Hub() != t.GVK.GroupVersion() || obj.GetObjectKind().GroupVersionKind() != t.GVK || !utf8.ValidString(t.Manager) {
		return false, nil
	}
	if !t.keepsRecord(obj, old) {
		return false, nil
	}
	var entries []entry
	if old != nil {
		var ok bool
		if entries, ok = entriesOf(old); !ok {
			return false, nil
		}
		if len(entries) == 0 && old.GetUID() != "" {
			obj.SetManagedFields(nil) // an object without owners stays without
			return true, nil
		}
	}
	d, ok, err := t.diff(obj, old, entries)
	if err != nil || !ok {
		return false, err
	}
	next, changed, ok := t.entriesAfter(entries, d)
	if !ok {
		return false, nil
	}
	return writeEntries(obj, old, next, changed), nil
}

// keepsRecord reports whether obj has the stored record, none, or one that is ignored.
func (t *Tracker) keepsRecord(obj, old Object) bool {
	if t.Subresource != "" && old != nil {
		return true
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		meta, ok := u.Object["metadata"].(map[string]any)
		if !ok {
			return false
		}
		_, sent := meta["managedFields"]
		return !sent || old != nil && len(rawRecord(u)) > 0 && unchangedRecord(obj, old)
	}
	sent := obj.GetManagedFields()
	return sent == nil || old != nil && len(sent) > 0 && reflect.DeepEqual(sent, old.GetManagedFields())
}

// diff compares two states of an object that has those entries. It returns false if that
// takes upstream's manager.
func (t *Tracker) diff(obj, old Object, entries []entry) (*diff, bool, error) {
	types, err := t.Types()
	if err != nil {
		return nil, false, err
	}
	root, ok := typeOf(types, t.GVK)
	if !ok {
		return nil, false, nil
	}
	d := &diff{walk: walk{root.Schema()}, set: fieldTree{}, removed: fieldTree{}}
	for i := range entries {
		e := &entries[i]
		if e.version != t.GVK.GroupVersion().String() || ownsIdentity(e.fields) || !d.stable(root.TypeRef(), e.fields, false) {
			return nil, false, nil
		}
	}
	live, err := t.live(old)
	if err != nil {
		return nil, false, err
	}
	if live.GetObjectKind().GroupVersionKind() != t.GVK {
		return nil, false, nil
	}
	was, ok := contentOf(live, true)
	if !ok {
		return nil, false, nil
	}
	is, ok := contentOf(obj, false)
	return d, ok && d.object(root.TypeRef(), was, is, t.Resets), nil
}

// ownsIdentity reports whether a set has a field that no manager owns.
func ownsIdentity(fields fieldTree) bool {
	if inSet(below(fields, "f:apiVersion")) || inSet(below(fields, "f:kind")) || inSet(below(fields, "f:metadata")) {
		return true
	}
	meta := below(fields, "f:metadata")
	for _, name := range unownedMetadata() {
		if inSet(below(meta, "f:"+name)) {
			return true
		}
	}
	return false
}

// contentOf returns the fields of an object that are compared: the new state without its
// record. With Go types the old state is without it too, which makes no difference.
func contentOf(obj runtime.Object, stored bool) (map[string]any, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		if m, ok := obj.(metav1.Object); ok {
			defer m.SetManagedFields(m.GetManagedFields())
			m.SetManagedFields(nil)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		return content, err == nil
	}
	if stored || rawRecord(u) == nil {
		return u.Object, true
	}
	content := maps.Clone(u.Object)
	meta := maps.Clone(content["metadata"].(map[string]any))
	delete(meta, "managedFields")
	content["metadata"] = meta
	return content, true
}

// entriesAfter returns the entries after this write: the fields that it sets belong to its
// manager, and removed fields to none. changed reports whether they differ from before.
// It returns false if there are too many.
func (t *Tracker) entriesAfter(entries []entry, d *diff) (next []entry, changed, ok bool) {
	mine := entry{
		manager: t.Manager, operation: string(metav1.ManagedFieldsOperationUpdate),
		version: t.GVK.GroupVersion().String(), subresource: t.Subresource,
	}
	if mine.manager == "" {
		mine.manager = "unknown"
	}
	for _, e := range entries {
		if intersect(e.fields, d.removed) {
			e.setFields(without(e.fields, d.removed))
			changed = true
		}
		if e.sameManager(&mine) && len(d.set) > 0 {
			mine = e
			continue
		}
		if intersect(e.fields, d.set) {
			e.setFields(without(e.fields, d.set))
			changed = true
		}
		if len(e.fields) > 0 {
			next = append(next, e)
		}
	}
	if len(d.set) > 0 {
		if !contains(mine.fields, d.set) {
			mine.setFields(union(mine.fields, d.set))
		}
		mine.raw, mine.seconds, changed = nil, time.Now().Unix(), true
		next = append(next, mine)
	}
	slices.SortFunc(next, entry.compare)
	updates := 0
	for i := range next {
		if next[i].operation == string(metav1.ManagedFieldsOperationUpdate) {
			updates++
		}
	}
	return next, changed, updates <= maxUpdateEntries
}

// writeEntries sets the record of obj: that of old, unless the entries have changed. It
// returns false if they cannot be encoded, and has set nothing then.
func writeEntries(obj, old Object, entries []entry, changed bool) bool {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		var record []metav1.ManagedFieldsEntry
		for i := range entries {
			typed, ok := entries[i].typed()
			if !ok {
				return false
			}
			record = append(record, typed)
		}
		obj.SetManagedFields(record)
		return true
	}
	meta := u.Object["metadata"].(map[string]any)
	if was, ok := old.(*unstructured.Unstructured); ok && !changed {
		meta["managedFields"] = rawRecord(was)
		return true
	}
	delete(meta, "managedFields")
	if len(entries) > 0 {
		record := make([]any, len(entries))
		for i := range entries {
			record[i] = entries[i].content()
		}
		meta["managedFields"] = record
	}
	return true
}
