package rest

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// What upstream's tracker is given is bounded, because it is quadratic in some
// of it: an object or a record beyond these is not tracked, and an apply patch
// that needs it to be is refused.
const (
	// maxNamedItems is how many items a list may have that are owned one by one:
	// their order is the client's, so they cannot come in the order of their
	// names. A list of so many in the worst order takes a second.
	maxNamedItems = 5000
	// maxOwners is how many entries a record may have.
	maxOwners = 1000
	// wideMap is from how many fields on the maps of an object are ordered.
	wideMap = 500
)

// errTooWide says what is too wide to have its owners tracked.
type errTooWide struct {
	path     string
	has, max int
}

// Error implements error.
func (e *errTooWide) Error() string {
	return fmt.Sprintf("%s has %d items that have owners of their own, more than %d", e.path, e.has, e.max)
}

// refuseWide is the 422 for an apply patch that would need owners of too much;
// nil if that is not what err says.
func (w *write) refuseWide(err error) error {
	var wide *errTooWide
	if !errors.As(err, &wide) {
		return nil
	}
	return apierrors.NewInvalid(w.gvk.GroupKind(), w.key.Name, field.ErrorList{
		field.TooMany(field.NewPath(wide.path), wide.has, wide.max),
	})
}

// boundedTypes has upstream's tracker see wide maps in order, and no lists that
// are too wide. It serves one write.
type boundedTypes struct {
	managedfields.TypeConverter
	// refused is why an object was not let through; upstream's errors do not
	// carry it.
	refused *errTooWide
}

// ObjectToTyped implements managedfields.TypeConverter.
func (t *boundedTypes) ObjectToTyped(obj runtime.Object, opts ...smdtyped.ValidationOptions) (*smdtyped.TypedValue, error) {
	empty := &unstructured.Unstructured{Object: map[string]any{}}
	empty.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	root, err := t.TypeConverter.ObjectToTyped(empty)
	if err != nil {
		return nil, err
	}
	var v value.Value
	if u, ok := obj.(*unstructured.Unstructured); ok {
		v = value.NewValueInterface(u.UnstructuredContent())
	} else if v, err = value.NewValueReflect(obj); err != nil {
		return nil, fmt.Errorf("look into %T: %w", obj, err)
	}
	width := widthWalk{schema: root.Schema(), allocator: value.NewFreelistAllocator()}
	if !width.value(root.TypeRef(), v) {
		t.refused = width.tooWide()
		return nil, t.refused
	}
	if width.wide {
		v = ordered{v}
	}
	return smdtyped.AsTyped(v, root.Schema(), root.TypeRef(), opts...)
}

// widthWalk looks for what makes it dear to track the owners of an object.
type widthWalk struct {
	schema    *smd.Schema
	allocator value.Allocator
	// wide says that there is a wide map.
	wide bool
	// path is where there is a list with too many items, from the inside out.
	path  []string
	items int
}

func (t *widthWalk) tooWide() *errTooWide {
	var path strings.Builder
	for i := len(t.path) - 1; i >= 0; i-- {
		if path.Len() > 0 && t.path[i][0] != '[' {
			path.WriteByte('.')
		}
		path.WriteString(t.path[i])
	}
	return &errTooWide{path: path.String(), has: t.items, max: maxNamedItems}
}

// value returns false at the first list that is too wide.
func (t *widthWalk) value(ref smd.TypeRef, v value.Value) bool {
	atom, ok := t.schema.Resolve(ref)
	switch {
	case !ok || v == nil || v.IsNull():
	case atom.Map != nil && v.IsMap():
		m := v.AsMapUsing(t.allocator)
		defer t.allocator.Free(m)
		t.wide = t.wide || m.Length() > wideMap
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
			t.items = n
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

// boundRecord is an error if the record of an object is more than upstream's
// tracker shall read. It puts the fields of a large one in order.
func (w *write) boundRecord(types managedfields.TypeConverter, obj Object) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		record := rawRecord(u)
		if len(record) > maxOwners {
			return &errTooWide{ownersPath, len(record), maxOwners}
		}
		for _, entry := range record {
			raw, _ := entry.(map[string]any)
			fields, _ := raw["fieldsV1"].(map[string]any)
			version, _ := raw["apiVersion"].(string)
			if err := w.boundFields(types, version, fields); err != nil {
				return err
			}
		}
		return nil
	}
	record := obj.GetManagedFields()
	if len(record) > maxOwners {
		return &errTooWide{ownersPath, len(record), maxOwners}
	}
	for i := range record {
		if err := w.boundEntry(types, &record[i]); err != nil {
			return err
		}
	}
	return nil
}

// ownersPath is where a record is.
const ownersPath = "metadata.managedFields"

// smallFields is how many bytes of fieldsV1 nobody looks into.
const smallFields = 16 << 10

func (w *write) boundEntry(types managedfields.TypeConverter, entry *metav1.ManagedFieldsEntry) error {
	if entry.FieldsV1 == nil || len(entry.FieldsV1.GetRawBytes()) <= smallFields {
		return nil
	}
	var fields map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil // what cannot be read is dear to nobody
	}
	if err := w.boundFields(types, entry.APIVersion, fields); err != nil {
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

// boundFields looks for too many items of a list in a set of fields, and for a
// large set that does not fit its type: upstream adapts one part at a time. The
// fields of maps come in order, however many.
func (w *write) boundFields(types managedfields.TypeConverter, version string, fields fieldTree) error {
	all, items := countFields(fields)
	if items > maxNamedItems {
		return &errTooWide{ownersPath, items, maxNamedItems}
	}
	if all <= maxNamedItems {
		return nil
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil // upstream reads no further
	}
	root, ok := typeOf(types, gv.WithKind(w.gvk.Kind))
	if ok && !(ownerWalk{root.Schema()}).stable(root.TypeRef(), fields, false) {
		return &errTooWide{ownersPath, all, maxNamedItems}
	}
	return nil
}

// countFields returns how many fields there are in a set, and how many items
// there are at most of one list.
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
