package managedfields

import (
	"maps"
	"reflect"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Record is a copy of metadata.managedFields of an object, undecoded if the object has no Go
// types, because decoding is slow.
type Record struct {
	entries []metav1.ManagedFieldsEntry
	raw     []any
}

// RecordOf returns the record of an object, independent of later changes. Without Go types the
// value is not copied: it is replaced and never changed in place (see rest.Admission).
func RecordOf(obj Object) Record {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return Record{raw: rawRecord(u)}
	}
	var r Record
	for _, entry := range obj.GetManagedFields() {
		r.entries = append(r.entries, *entry.DeepCopy())
	}
	return r
}

func rawRecord(u *unstructured.Unstructured) []any {
	meta, _ := u.Object["metadata"].(map[string]any)
	raw, _ := meta["managedFields"].([]any)
	return raw
}

// recordedVersions returns the versions of managedFields of an object. old may be nil.
func recordedVersions(old Object) []string {
	var versions []string
	u, ok := old.(*unstructured.Unstructured)
	switch {
	case old == nil:
	case ok:
		for _, entry := range rawRecord(u) {
			fields, _ := entry.(map[string]any)
			version, _ := fields["apiVersion"].(string)
			versions = append(versions, version)
		}
	default:
		for _, entry := range old.GetManagedFields() {
			versions = append(versions, entry.APIVersion)
		}
	}
	return versions
}

// unchangedRecord reports whether an object without Go types has no managedFields or those of
// the stored object.
func unchangedRecord(obj, old Object) bool {
	u, ok := obj.(*unstructured.Unstructured)
	was, stored := old.(*unstructured.Unstructured)
	return ok && stored && (rawRecord(u) == nil || reflect.DeepEqual(rawRecord(u), rawRecord(was)))
}

// Of reports whether r is the record of obj; false also if that would be slow to find out.
func (r Record) Of(obj Object) bool {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		now := rawRecord(u)
		return len(now) == len(r.raw) && (len(now) == 0 || &now[0] == &r.raw[0])
	}
	return apiequality.Semantic.DeepEqual(r.entries, obj.GetManagedFields())
}

// Restore sets managedFields of obj.
func (r Record) Restore(obj Object) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		obj.SetManagedFields(r.entries)
		return
	}
	obj.SetManagedFields(nil)
	if meta, ok := u.Object["metadata"].(map[string]any); ok && r.raw != nil {
		meta["managedFields"] = r.raw
	}
}

// sameButTimes reports whether two records differ in times only.
func sameButTimes(next, was Record) bool {
	sameTime := func(a, b metav1.ManagedFieldsEntry) bool { return a.Time.Equal(b.Time) }
	same := func(a, b metav1.ManagedFieldsEntry) bool {
		a.Time, b.Time = nil, nil
		return apiequality.Semantic.DeepEqual(a, b)
	}
	return !slices.EqualFunc(next.entries, was.entries, sameTime) && slices.EqualFunc(next.entries, was.entries, same) ||
		!slices.EqualFunc(next.raw, was.raw, sameRawTime) && slices.EqualFunc(next.raw, was.raw, sameRaw)
}

func sameRawTime(a, b any) bool {
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	return reflect.DeepEqual(x["time"], y["time"])
}

func sameRaw(a, b any) bool {
	timeless := func(entry any) map[string]any {
		fields, _ := entry.(map[string]any)
		fields = maps.Clone(fields)
		delete(fields, "time")
		return fields
	}
	return apiequality.Semantic.DeepEqual(timeless(a), timeless(b))
}

// KeepTimes restores the times in managedFields of obj if it differs from old in nothing else,
// so that a write without a change is not stored.
func KeepTimes(obj, old Object) {
	next, was := RecordOf(obj), RecordOf(old)
	if !sameButTimes(next, was) {
		return
	}
	equal := apiequality.Semantic.DeepEqual
	if next.raw != nil {
		// Without Go types, an empty map differs from a missing one.
		equal = apiequality.Semantic.DeepEqualWithNilDifferentFromEmpty
	}
	was.Restore(obj)
	if !equal(obj, old) {
		next.Restore(obj)
	}
}
