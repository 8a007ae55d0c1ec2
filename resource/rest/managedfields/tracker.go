package managedfields

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Object is a decoded object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Codec converts objects between the versions of a kind.
type Codec interface {
	// Hub returns the group and version of the hub form, in which objects are given
	// to a Tracker.
	Hub() schema.GroupVersion
	// ConvertTo returns obj in another version; see rest.Versioned.
	ConvertTo(obj runtime.Object, gv schema.GroupVersion) (runtime.Object, error)
}

// Tracker records what one write changes as owned by its manager. It serves one
// request; not safe for concurrent use.
type Tracker struct {
	// Types returns the types of the objects. nil: ownership is not tracked, and no
	// method but Enabled and Recorded may be called.
	Types func() (upstream.TypeConverter, error)
	// Codec, of the kind GVK. Required.
	Codec Codec
	// GVK is the kind and version that the objects are written in.
	GVK schema.GroupVersionKind
	// Manager is the name of the manager; see ManagerName.
	Manager string
	// Subresource is the subresource that is written; "" is the object itself.
	Subresource string
	// Resets are the top-level fields that this write does not change, whatever the
	// client sends, and so does not own.
	Resets []string
	// Projected says that the objects are views of stored objects of another kind.
	Projected bool
	// recorded is the record that the last Update made; it needs no validation.
	recorded Record
}

// Enabled reports whether ownership is tracked.
func (t *Tracker) Enabled() bool { return t.Types != nil }

// ManagerName returns the name of the manager of a write: fieldManager, or else the
// printable part of the user agent before the first "/", cut to the length that a
// manager's name may have. An empty name is recorded as "unknown".
func ManagerName(fieldManager, userAgent string) string {
	if fieldManager != "" {
		return fieldManager
	}
	agent, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, r := range agent {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > metavalidation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(r)
	}
	return name.String()
}

// Update sets metadata.managedFields of obj, which replaces old (nil: it is new): the
// fields that differ belong to the manager. On an error obj's record is undefined.
func (t *Tracker) Update(obj, old Object) error {
	if done, err := t.recordUpdate(obj, old); done || err != nil {
		if _, ok := obj.(*unstructured.Unstructured); ok {
			t.recorded = RecordOf(obj)
		}
		return err
	}
	m, types, err := t.manager(old)
	if err != nil {
		return err
	}
	live, err := t.live(old)
	if err != nil {
		return err
	}
	if err := t.boundRecord(types.TypeConverter, obj); err != nil {
		return err
	}
	// A stored record is valid, and so is what upstream's manager adds.
	valid := unchangedRecord(obj, old)
	// The result is obj itself.
	if _, err = m.Update(live, obj, t.Manager); err == nil && valid {
		t.recorded = RecordOf(obj)
	}
	return err
}

// Recorded reports whether obj has, without Go types, the record that Update made:
// then it need not be validated.
func (t *Tracker) Recorded(obj Object) bool {
	return len(t.recorded.raw) > 0 && t.recorded.Of(obj)
}

// ErrPatch marks an error of Apply that the patch is to blame for: it does not fit
// the types.
var ErrPatch = errors.New("the patch does not fit the kind's types")

// Apply returns old (nil: there is none) with patch merged into it, and with the
// fields of patch recorded as applied by the manager. Conflicts are upstream's
// StatusError; [*TooManyError] says what is too much to be tracked; an error that
// wraps ErrPatch is about the patch. patch is not changed.
func (t *Tracker) Apply(old Object, patch map[string]any, force bool) (runtime.Object, error) {
	m, types, err := t.manager(old)
	if err != nil {
		return nil, err
	}
	live, err := t.live(old)
	if err != nil {
		return nil, err
	}
	if _, ok := live.(runtime.Unstructured); ok {
		live = live.DeepCopyObject()
	}
	// The result may share memory with the patch and, without Go types, with live.
	applied := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(patch)}
	merged, err := m.Apply(live, applied, t.Manager, force)
	switch {
	case err == nil:
		return merged, nil
	case types.refused != nil:
		return nil, types.refused
	}
	if _, typing := types.ObjectToTyped(applied); typing != nil {
		return nil, &patchError{err}
	}
	return nil, err
}

// patchError is an error of upstream's manager about a patch. Its text is that one's.
type patchError struct{ error }

func (e *patchError) Unwrap() error { return e.error }

// Is has errors.Is find ErrPatch.
func (e *patchError) Is(target error) bool { return target == ErrPatch }

// manager returns upstream's field manager for this write. It is built for each
// write: that is cheap, and nothing keeps the types in memory.
func (t *Tracker) manager(old Object) (*upstream.FieldManager, *boundedTypes, error) {
	types, err := t.Types()
	if err != nil {
		return nil, nil, fmt.Errorf("load schema of field ownership: %w", err)
	}
	if old != nil {
		if err := t.boundRecord(types, old); err != nil {
			return nil, nil, err
		}
	}
	converter := &boundedTypes{TypeConverter: types}
	if t.Codec == nil {
		return nil, nil, fmt.Errorf("track field ownership of %s: its codec cannot convert", t.GVK.Kind)
	}
	c := versions{t.Codec}
	// Upstream's manager "for CRDs" is the one whose hub is a version like any other,
	// of any group; the other one has an internal version.
	m, err := upstream.NewDefaultCRDFieldManager(converter, c, c, c, t.GVK, t.Codec.Hub(), t.Subresource, t.resetFilter(old))
	return m, converter, err
}

// resetFilter excludes Resets, in every version that ownership is recorded in.
func (t *Tracker) resetFilter(old Object) map[fieldpath.APIVersion]fieldpath.Filter {
	if len(t.Resets) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, name := range t.Resets {
		set.Insert(fieldpath.MakePathOrDie(name))
	}
	filter := fieldpath.NewExcludeSetFilter(set)
	out := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(t.GVK.GroupVersion().String()): filter}
	for _, version := range recordedVersions(old) {
		out[fieldpath.APIVersion(version)] = filter
	}
	return out
}

// live is what a write is compared with: the stored object, or an empty one.
func (t *Tracker) live(old Object) (runtime.Object, error) {
	if old != nil {
		return old, nil
	}
	return versions{t.Codec}.New(t.GVK)
}

// Keep sets metadata.managedFields of an update that is not tracked: the stored
// record stays unless the body resets it ([] or [{}]) or brings another one. With
// subresource it always stays.
func Keep(obj, old metav1.Object, subresource bool) {
	fields := obj.GetManagedFields()
	switch {
	case subresource, fields == nil:
		obj.SetManagedFields(old.GetManagedFields())
	case len(fields) == 0, len(fields) == 1 && apiequality.Semantic.DeepEqual(fields[0], metav1.ManagedFieldsEntry{}):
		obj.SetManagedFields(nil)
	}
}
