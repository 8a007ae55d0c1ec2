package rest

import (
	"maps"
	"reflect"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ownerRecord is metadata.managedFields at some time: entries, or in an object
// without Go types what stands there, which it takes long to make entries of.
type ownerRecord struct {
	entries []metav1.ManagedFieldsEntry
	raw     []any
}

// recordOf returns the record as it is, whatever becomes of the object. Without
// Go types that is so because nobody changes it in place (see Admission); with
// them, whoever decodes into the object does.
func recordOf(obj Object) ownerRecord {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return ownerRecord{raw: rawRecord(u)}
	}
	var r ownerRecord
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

// recordedVersions are the versions that the owners of an object wrote it in.
// old is nil where there is none.
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

// knownRecord reports whether an object without Go types brings no other record
// than the stored one has.
func knownRecord(obj, old Object) bool {
	u, ok := obj.(*unstructured.Unstructured)
	was, stored := old.(*unstructured.Unstructured)
	return ok && stored && (rawRecord(u) == nil || reflect.DeepEqual(rawRecord(u), rawRecord(was)))
}

// stands reports whether that is certainly obj's record still.
func (r ownerRecord) stands(obj Object) bool {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		now := rawRecord(u)
		return len(now) == len(r.raw) && (len(now) == 0 || &now[0] == &r.raw[0])
	}
	return apiequality.Semantic.DeepEqual(r.entries, obj.GetManagedFields())
}

// restore gives obj this record.
func (r ownerRecord) restore(obj Object) {
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

// sameButTimes reports whether two records differ, and in nothing but times.
func sameButTimes(next, was ownerRecord) bool {
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

// keepTimes puts the times of ownership back if they are all that is new, so
// that a write which changes nothing is none.
func keepTimes(obj, old Object) {
	next, was := recordOf(obj), recordOf(old)
	if !sameButTimes(next, was) {
		return
	}
	equal := apiequality.Semantic.DeepEqual
	if next.raw != nil {
		// Where there are no types, an empty map is not the same as none.
		equal = apiequality.Semantic.DeepEqualWithNilDifferentFromEmpty
	}
	was.restore(obj)
	if !equal(obj, old) {
		next.restore(obj)
	}
}
