package managedfields

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Bounds of the input of upstream's manager, which is quadratic in them. Ownership of an
// object or a record beyond them is not updated, and an apply patch of it is rejected.
const (
	// maxNamedItems bounds the items of an associative list, which are in the order of the
	// client. In the worst order this many take a second.
	maxNamedItems = 5000
	// MaxEntries bounds the entries of managedFields.
	MaxEntries = 1000
	// maxMapFields bounds the fields of one map, which come in a random order. Tracking this
	// many takes a second.
	maxMapFields = 20_000
)

// TooManyError is the error for a list, or managedFields, with too many items to track.
type TooManyError struct {
	path     string
	has, max int
}

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("%s has %d items with managers of their own, more than %d", e.path, e.has, e.max)
}

// Field returns the error of the field, for a 422.
func (e *TooManyError) Field() *field.Error {
	return field.TooMany(field.NewPath(e.path), e.has, e.max)
}

// boundedTypes is a TypeConverter that rejects maps and lists that are too long.
// It serves one write.
type boundedTypes struct {
	upstream.TypeConverter
	// version is the version of the write. converted returns the types of objects in other versions. If it is nil,
	// TypeConverter has the types of all versions.
	version   schema.GroupVersion
	converted func() (upstream.TypeConverter, error)
	// refused is the error of a rejected object, which the errors of upstream's manager do
	// not wrap.
	refused *TooManyError
}

// ObjectToTyped implements upstream.TypeConverter.
func (t *boundedTypes) ObjectToTyped(obj runtime.Object, opts ...smdtyped.ValidationOptions) (*smdtyped.TypedValue, error) {
	empty := &unstructured.Unstructured{Object: map[string]any{}}
	gvk, types := obj.GetObjectKind().GroupVersionKind(), t.TypeConverter
	empty.SetGroupVersionKind(gvk)
	if gvk.GroupVersion() != t.version && t.converted != nil {
		var err error
		if types, err = t.converted(); err != nil {
			return nil, fmt.Errorf("load schema of field ownership: %w", err)
		}
	}
	root, err := types.ObjectToTyped(empty)
	if err != nil {
		return nil, err
	}
	var v value.Value
	if u, ok := obj.(*unstructured.Unstructured); ok {
		v = value.NewValueInterface(u.UnstructuredContent())
	} else if v, err = value.NewValueReflect(obj); err != nil {
		return nil, fmt.Errorf("read %T: %w", obj, err)
	}
	width := widthWalk{schema: root.Schema(), allocator: value.NewFreelistAllocator()}
	if !width.value(root.TypeRef(), v) {
		t.refused = width.tooWide()
		return nil, t.refused
	}
	return smdtyped.AsTyped(v, root.Schema(), root.TypeRef(), opts...)
}

// widthWalk finds the parts of an object that are expensive to track.
type widthWalk struct {
	schema    *smd.Schema
	allocator value.Allocator
	// path is the path of a map or list with too many items, innermost first.
	path       []string
	items, max int
}

func (t *widthWalk) tooWide() *TooManyError {
	var path strings.Builder
	for i := len(t.path) - 1; i >= 0; i-- {
		if path.Len() > 0 && t.path[i][0] != '[' {
			path.WriteByte('.')
		}
		path.WriteString(t.path[i])
	}
	return &TooManyError{path: path.String(), has: t.items, max: t.max}
}

// value returns false for a map or list that is too long.
func (t *widthWalk) value(ref smd.TypeRef, v value.Value) bool {
	atom, ok := t.schema.Resolve(ref)
	switch {
	case !ok || v == nil || v.IsNull():
	case atom.Map != nil && v.IsMap():
		m := v.AsMapUsing(t.allocator)
		defer t.allocator.Free(m)
		if m.Length() > maxMapFields {
			t.items, t.max = m.Length(), maxMapFields
			return false
		}
		return m.IterateUsing(t.allocator, func(key string, in value.Value) bool {
			ref := atom.Map.ElementType
			if f, ok := atom.Map.FindField(key); ok {
				ref = f.Type
			}
			if ok := t.value(ref, in); !ok {
				t.path = append(t.path, key)
				return false
			}
			return true
		})
	case atom.List != nil && v.IsList():
		l := v.AsListUsing(t.allocator)
		defer t.allocator.Free(l)
		if n := l.Length(); atom.List.ElementRelationship == smd.Associative && n > maxNamedItems {
			t.items, t.max = n, maxNamedItems
			return false
		}
		for i := range l.Length() {
			item := l.AtUsing(t.allocator, i)
			if ok := t.value(atom.List.ElementType, item); !ok {
				t.path = append(t.path, fmt.Sprintf("[%d]", i))
				return false
			}
			t.allocator.Free(item)
		}
	}
	return true
}

// boundRecord returns an error if managedFields of an object are beyond the bounds. It sorts
// the fields of large entries.
func (t *Tracker) boundRecord(types upstream.TypeConverter, obj Object) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		record := rawRecord(u)
		if len(record) > MaxEntries {
			return &TooManyError{recordPath, len(record), MaxEntries}
		}
		for _, entry := range record {
			raw, _ := entry.(map[string]any)
			fields, _ := raw["fieldsV1"].(map[string]any)
			version, _ := raw["apiVersion"].(string)
			if err := t.boundFields(types, version, fields); err != nil {
				return err
			}
		}
		return nil
	}
	record := obj.GetManagedFields()
	if len(record) > MaxEntries {
		return &TooManyError{recordPath, len(record), MaxEntries}
	}
	for i := range record {
		if err := t.boundEntry(types, &record[i]); err != nil {
			return err
		}
	}
	return nil
}

// recordPath is the path of managedFields.
const recordPath = "metadata.managedFields"

// smallFields is the size of fieldsV1 up to which it is not checked, in bytes.
const smallFields = 16 << 10

func (t *Tracker) boundEntry(types upstream.TypeConverter, entry *metav1.ManagedFieldsEntry) error {
	if entry.FieldsV1 == nil || len(entry.FieldsV1.GetRawBytes()) <= smallFields {
		return nil
	}
	var fields map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil // upstream's manager returns the error
	}
	if err := t.boundFields(types, entry.APIVersion, fields); err != nil {
		return err
	}
	set, ok := fieldSet(fields)
	if !ok {
		return nil
	}
	text, err := set.ToJSON()
	if err == nil {
		entry.FieldsV1 = &metav1.FieldsV1{}
		entry.FieldsV1.SetRawBytes(text)
	}
	return err
}

// boundFields returns an error for a set of fields with too many items of one list, and for a
// large set that does not match its type, which upstream adapts one field at a time.
func (t *Tracker) boundFields(types upstream.TypeConverter, version string, fields fieldTree) error {
	all, items := countFields(fields)
	if items > maxNamedItems {
		return &TooManyError{recordPath, items, maxNamedItems}
	}
	if all <= maxNamedItems {
		return nil
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil // upstream's manager returns the error
	}
	root, ok := typeOf(types, gv.WithKind(t.GVK.Kind))
	if ok && !(walk{root.Schema()}).stable(root.TypeRef(), fields, false) {
		return &TooManyError{recordPath, all, maxNamedItems}
	}
	return nil
}

// countFields returns the number of fields of a set and the largest number of items of one
// list.
func countFields(fields fieldTree) (all, items int) {
	here := 0
	for name, value := range fields {
		if name == self {
			continue
		}
		all++
		if !strings.HasPrefix(name, "f:") {
			here++
		}
		if in, ok := value.(map[string]any); ok && len(in) > 0 {
			below, most := countFields(in)
			all, items = all+below, max(items, most)
		}
	}
	return all, max(items, here)
}

// stable reports whether fields match the type: they have canonical names, and no parent that
// is atomic.
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

// stableBelow is stable for all children of a node. Those without a type only need canonical
// names.
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

// canonicalName reports whether upstream encodes a path element with that name.
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
