package rest

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

// recordChange is record for the plain case of an update, or of a new object of
// a Go type: everybody wrote in the version of this write, nobody's fields have
// changed their type, and the client leaves the record alone. One walk over both
// states tells what has changed; only the entries that this touches are made
// anew. false is that the case is another one, and nothing was recorded.
//
// The record is the same as upstream's tracker makes: FuzzOwnerChange compares
// them.
func (w *write) recordChange(obj, old Object) (bool, error) {
	codec, ok := w.body.Codec.(Versioned)
	if !ok || w.projection != nil || codec.Hub() != w.gvk.GroupVersion() || obj.GetObjectKind().GroupVersionKind() != w.gvk || !utf8.ValidString(w.owner) {
		return false, nil
	}
	if !w.leavesRecord(obj, old) {
		return false, nil
	}
	var entries []ownerEntry
	if old != nil {
		if entries, ok = entriesOf(old); !ok {
			return false, nil
		}
		if len(entries) == 0 && old.GetUID() != "" {
			obj.SetManagedFields(nil) // whom nobody owned, nobody begins to own
			return true, nil
		}
	}
	d, ok, err := w.diff(obj, old, entries)
	if err != nil || !ok {
		return false, err
	}
	next, changed, ok := w.ownersAfter(entries, d)
	if !ok {
		return false, nil
	}
	return writeEntries(obj, old, next, changed), nil
}

// leavesRecord reports whether obj brings no other record than the stored one,
// or one that does not count.
func (w *write) leavesRecord(obj, old Object) bool {
	if w.subresource != "" && old != nil {
		return true
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		meta, ok := u.Object["metadata"].(map[string]any)
		if !ok {
			return false
		}
		_, sent := meta["managedFields"]
		return !sent || old != nil && len(rawRecord(u)) > 0 && knownRecord(obj, old)
	}
	sent := obj.GetManagedFields()
	return sent == nil || old != nil && len(sent) > 0 && reflect.DeepEqual(sent, old.GetManagedFields())
}

// diff compares two states of an object that has those owners. False is that it
// takes upstream's tracker to do that.
func (w *write) diff(obj, old Object, entries []ownerEntry) (*ownerDiff, bool, error) {
	converter, err := w.ownership()
	if err != nil {
		return nil, false, err
	}
	root, ok := typeOf(converter, w.gvk)
	if !ok {
		return nil, false, nil
	}
	d := &ownerDiff{ownerWalk: ownerWalk{root.Schema()}, set: fieldTree{}, gone: fieldTree{}}
	for i := range entries {
		e := &entries[i]
		if e.version != w.gvk.GroupVersion().String() || ownsIdentity(e.fields) || !d.stable(root.TypeRef(), e.fields, false) {
			return nil, false, nil
		}
	}
	live, err := w.live(old)
	if err != nil {
		return nil, false, err
	}
	if live.GetObjectKind().GroupVersionKind() != w.gvk {
		return nil, false, nil
	}
	was, ok := ownedContent(live, true)
	if !ok {
		return nil, false, nil
	}
	is, ok := ownedContent(obj, false)
	return d, ok && d.object(root.TypeRef(), was, is, w.resets), nil
}

// ownsIdentity reports whether there is something in a set that nobody owns.
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

// ownedContent is an object as what ownership compares: the new state is without
// its record. Of Go types, the old one is too, which makes no difference.
func ownedContent(obj runtime.Object, stored bool) (map[string]any, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		bare := withKind(obj, obj.GetObjectKind().GroupVersionKind())
		if m, ok := bare.(metav1.Object); ok {
			m.SetManagedFields(nil)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(bare)
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

// ownersAfter are the entries after this write: what it set belongs to its owner
// and what is gone to nobody. changed is whether there is any other than before.
// False is that there are too many.
func (w *write) ownersAfter(entries []ownerEntry, d *ownerDiff) (next []ownerEntry, changed, ok bool) {
	mine := ownerEntry{
		manager: w.owner, operation: string(metav1.ManagedFieldsOperationUpdate),
		version: w.gvk.GroupVersion().String(), subresource: w.subresource,
	}
	if mine.manager == "" {
		mine.manager = "unknown"
	}
	for _, e := range entries {
		if meet(e.fields, d.gone) {
			e.take(without(e.fields, d.gone))
			changed = true
		}
		if e.sameOwner(&mine) && len(d.set) > 0 {
			mine = e
			continue
		}
		if meet(e.fields, d.set) {
			e.take(without(e.fields, d.set))
			changed = true
		}
		if len(e.fields) > 0 {
			next = append(next, e)
		}
	}
	if len(d.set) > 0 {
		if !covers(mine.fields, d.set) {
			mine.take(union(mine.fields, d.set))
		}
		mine.raw, mine.seconds, changed = nil, time.Now().Unix(), true
		next = append(next, mine)
	}
	slices.SortFunc(next, ownerEntry.compare)
	updates := 0
	for i := range next {
		if next[i].operation == string(metav1.ManagedFieldsOperationUpdate) {
			updates++
		}
	}
	return next, changed, updates <= maxUpdateEntries
}

// writeEntries makes the record of obj out of entries: that of old, unless they
// have changed. False is that they cannot be written, and nothing was.
func writeEntries(obj, old Object, entries []ownerEntry, changed bool) bool {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		var record []metav1.ManagedFieldsEntry
		for i := range entries {
			entry, ok := entries[i].entry()
			if !ok {
				return false
			}
			record = append(record, entry)
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
