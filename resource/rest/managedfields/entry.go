package managedfields

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// entry is a decoded entry of managedFields.
type entry struct {
	manager, operation, version, subresource string
	// seconds is its time, in seconds since 1970.
	seconds int64
	fields  fieldTree
	// raw is the entry of an object without Go types, and text the fields of one with
	// Go types, as they were; nil after a change.
	raw  map[string]any
	text *metav1.FieldsV1
}

const (
	// maxComparedEntries bounds the entries, each of which is compared with all others.
	maxComparedEntries = 32
	// maxUpdateEntries is how many entries of updates an object keeps before upstream's
	// manager merges the oldest (docs/wire.md 6.4).
	maxUpdateEntries = 10
)

// entriesOf decodes the record of an object. It returns false for one that this server
// would not have written.
func entriesOf(obj Object) ([]entry, bool) {
	var entries []entry
	if u, ok := obj.(*unstructured.Unstructured); ok {
		for _, value := range rawRecord(u) {
			raw, _ := value.(map[string]any)
			e, ok := rawEntry(raw)
			if !ok {
				return nil, false
			}
			entries = append(entries, e)
		}
	} else {
		record := obj.GetManagedFields()
		for i := range record {
			e, ok := typedEntry(&record[i])
			if !ok {
				return nil, false
			}
			entries = append(entries, e)
		}
	}
	if len(entries) > maxComparedEntries {
		return nil, false
	}
	for i := range entries {
		same := func(e entry) bool { return e.sameManager(&entries[i]) }
		if slices.ContainsFunc(entries[:i], same) {
			return nil, false
		}
	}
	return entries, slices.IsSortedFunc(entries, entry.compare)
}

func rawEntry(raw map[string]any) (e entry, ok bool) {
	text := func(key string) string {
		s, _ := raw[key].(string)
		return s
	}
	e = entry{
		manager: text("manager"), operation: text("operation"), version: text("apiVersion"), subresource: text("subresource"), raw: raw,
	}
	when, err := time.Parse(time.RFC3339, text("time"))
	e.seconds = when.Unix()
	e.fields, _ = raw["fieldsV1"].(map[string]any)
	known := 6
	if e.subresource != "" {
		known++
	}
	ok = err == nil && len(raw) == known && when.UTC().Format(time.RFC3339) == raw["time"] && text("fieldsType") == "FieldsV1"
	return e, ok && e.complete()
}

func typedEntry(t *metav1.ManagedFieldsEntry) (e entry, ok bool) {
	e = entry{manager: t.Manager, operation: string(t.Operation), version: t.APIVersion, subresource: t.Subresource, text: t.FieldsV1}
	if t.Time == nil || t.FieldsV1 == nil || t.FieldsType != "FieldsV1" {
		return e, false
	}
	e.seconds = t.Time.Unix()
	twice, err := kjson.UnmarshalStrict(t.FieldsV1.GetRawBytes(), &e.fields)
	return e, err == nil && len(twice) == 0 && e.complete()
}

// complete reports whether an entry has everything it must have.
func (e *entry) complete() bool {
	applied := e.operation == string(metav1.ManagedFieldsOperationApply)
	return e.manager != "" && e.version != "" && len(e.fields) > 0 && e.fields[self] == nil &&
		(applied || e.operation == string(metav1.ManagedFieldsOperationUpdate))
}

// setFields changes the fields of an entry.
func (e *entry) setFields(fields fieldTree) {
	e.fields, e.raw, e.text = fields, nil, nil
}

// content returns the entry for an object without Go types.
func (e *entry) content() map[string]any {
	if e.raw != nil {
		return e.raw
	}
	raw := map[string]any{
		"manager": e.manager, "operation": e.operation, "apiVersion": e.version, "fieldsType": "FieldsV1", "fieldsV1": e.fields,
		"time": time.Unix(e.seconds, 0).UTC().Format(time.RFC3339),
	}
	if e.subresource != "" {
		raw["subresource"] = e.subresource
	}
	return raw
}

// typed returns the entry for an object with Go types; false if a name is invalid.
func (e *entry) typed() (metav1.ManagedFieldsEntry, bool) {
	when := metav1.NewTime(time.Unix(e.seconds, 0).UTC())
	out := metav1.ManagedFieldsEntry{
		Manager: e.manager, Operation: metav1.ManagedFieldsOperationType(e.operation), APIVersion: e.version, Subresource: e.subresource,
		Time: &when, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{},
	}
	if e.text != nil {
		e.text.DeepCopyInto(out.FieldsV1)
		return out, true
	}
	set, ok := fieldSet(e.fields)
	if !ok {
		return out, false
	}
	text, err := set.ToJSON()
	out.FieldsV1.SetRawBytes(text)
	return out, err == nil
}

// sameManager reports whether two entries are of the same manager, which has one for each
// operation and subresource, and for updates each version.
func (e *entry) sameManager(o *entry) bool {
	applied := e.operation == string(metav1.ManagedFieldsOperationApply)
	return e.manager == o.manager && e.operation == o.operation && e.subresource == o.subresource && (applied || e.version == o.version)
}

// compare is the order of entries in an object.
func (e entry) compare(o entry) int {
	return cmp.Or(strings.Compare(e.operation, o.operation), cmp.Compare(e.seconds, o.seconds),
		strings.Compare(e.manager, o.manager), strings.Compare(e.version, o.version), strings.Compare(e.subresource, o.subresource))
}

// stable reports whether recorded fields are what would be recorded now: named as
// upstream names them, and in no part of the type that is atomic now.
func (t walk) stable(ref smd.TypeRef, fields fieldTree, member bool) bool {
	atom, ok := t.schema.Resolve(ref)
	whole := member && len(fields) == 0
	switch {
	case !ok || atom == (smd.Atom{}):
		return false
	case atom.Map != nil:
		if isAtomic(atom.Map.ElementRelationship) && !whole {
			return false
		}
	case atom.Scalar != nil:
		return t.stableBelow(fields, func(string) (smd.TypeRef, bool) { return smd.TypeRef{}, false })
	case isAtomic(atom.List.ElementRelationship) && !whole:
		return false
	}
	return t.stableBelow(fields, func(name string) (smd.TypeRef, bool) {
		if atom.Map == nil {
			return atom.List.ElementType, true
		}
		ref := atom.Map.ElementType
		if field, ok := strings.CutPrefix(name, "f:"); ok {
			if f, ok := atom.Map.FindField(field); ok {
				ref = f.Type
			}
		}
		return ref, ref != smd.TypeRef{}
	})
}

// stableBelow is stable for all parts of a node. Parts without a type only have to have
// canonical names.
func (t walk) stableBelow(fields fieldTree, typeOf func(name string) (smd.TypeRef, bool)) bool {
	for name, value := range fields {
		node, ok := value.(map[string]any)
		if name == self {
			if !ok || len(node) > 0 || len(fields) == 1 {
				return false
			}
			continue
		}
		if !ok || !canonicalName(name) {
			return false
		}
		ref, typed := typeOf(name)
		switch {
		case !typed:
			none := func(string) (smd.TypeRef, bool) { return smd.TypeRef{}, false }
			if !t.stableBelow(node, none) {
				return false
			}
		case !t.stable(ref, node, inSet(node)):
			return false
		}
	}
	return true
}

// canonicalName reports whether a part has the name that upstream writes.
func canonicalName(name string) bool {
	if strings.HasPrefix(name, "f:") {
		return true
	}
	if !strings.HasPrefix(name, "k:") && !strings.HasPrefix(name, "v:") {
		return false
	}
	element, err := fieldpath.DeserializePathElement(name)
	if err != nil {
		return false
	}
	text, err := fieldpath.SerializePathElement(element)
	return err == nil && text == name
}
