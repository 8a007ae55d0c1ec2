// Package managedfields records in metadata.managedFields which manager owns which fields of
// an object: for server-side apply and for every other create, update and patch.
//
// Upstream's field manager (k8s.io/apimachinery/pkg/util/managedfields) does so. Its input is
// bounded (bounds.go) because it is quadratic in some of it. The fast path is the creation of
// an object, which one walk along the type records (recordCreate) in a fraction of the time;
// BenchmarkCreate measures both, and FuzzRecordCreate compares them.
//
// Runs in: gateway, core, crd.
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

// Tracker records the fields that one write changes as owned by its manager. It serves one
// request and is not safe for concurrent use.
type Tracker struct {
	// Types returns the types of the objects. nil: ownership is not tracked, and only
	// Enabled and Recorded may be called.
	Types func() (upstream.TypeConverter, error)
	// Converted returns the types of objects in versions other than GVK's. They permit unknown fields: a conversion
	// between versions drops no field, so that an object that is converted back is complete. If Converted is nil, Types
	// has the types of all versions.
	Converted func() (upstream.TypeConverter, error)
	// Codec of the kind GVK. Required.
	Codec Codec
	// GVK is the kind and version that the objects are written in.
	GVK schema.GroupVersionKind
	// Manager is the name of the manager; see ManagerName.
	Manager string
	// Subresource is the name of the subresource; "": the object itself.
	Subresource string
	// Resets are the fields that this write resets, and does not own, as paths with dots.
	Resets []string
	// Projected: the objects are projections of stored objects of another kind.
	Projected bool
	// recorded is the record of the last Update, which needs no validation.
	recorded Record
}

// Enabled reports whether ownership is tracked.
func (t *Tracker) Enabled() bool { return t.Types != nil }

// ManagerName returns the name of the manager of a write: fieldManager, or the printable
// characters of the User-Agent before the first "/", up to the maximum length of a name. An
// empty name is recorded as "unknown".
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

// Update sets metadata.managedFields of obj, which replaces old (nil on create): the manager
// owns the fields that differ. After an error managedFields of obj are undefined.
func (t *Tracker) Update(obj, old Object) error {
	if old == nil {
		if done, err := t.recordCreate(obj); done || err != nil {
			if _, ok := obj.(*unstructured.Unstructured); ok {
				t.recorded = RecordOf(obj)
			}
			return err
		}
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
	// Stored managedFields are valid, and so are those of upstream's manager.
	valid := unchangedRecord(obj, old)
	// Update returns obj itself.
	if _, err = m.Update(live, obj, t.Manager); err == nil && valid {
		t.recorded = RecordOf(obj)
	}
	return err
}

// Recorded reports whether obj, without Go types, has the managedFields of the last Update,
// which need no validation.
func (t *Tracker) Recorded(obj Object) bool {
	return len(t.recorded.raw) > 0 && t.recorded.Of(obj)
}

// ErrPatch is the error of Apply for a patch that does not match the types.
var ErrPatch = errors.New("the patch does not fit the kind's types")

// Apply returns old (nil: none) merged with patch, and with the fields of patch recorded as
// applied by the manager. patch is not changed. Errors: upstream's StatusError for conflicts;
// [*TooManyError]; ErrPatch.
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

// patchError is an ErrPatch with the text of upstream's error.
type patchError struct{ error }

func (e *patchError) Unwrap() error { return e.error }

// Is implements errors.Is for ErrPatch.
func (e *patchError) Is(target error) bool { return target == ErrPatch }

// manager returns upstream's field manager. It is cheap, and built for each write so that
// nothing keeps the types in memory.
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
	converter := &boundedTypes{TypeConverter: types, version: t.GVK.GroupVersion(), converted: t.Converted}
	if t.Codec == nil {
		return nil, nil, fmt.Errorf("track field ownership of %s: its codec cannot convert", t.GVK.Kind)
	}
	c := versions{t.Codec}
	// Upstream's manager for CRDs has a hub of any group and version; the other one has an
	// internal hub version.
	m, err := upstream.NewDefaultCRDFieldManager(converter, c, c, c, t.GVK, t.Codec.Hub(), t.Subresource, t.resetFilter(old))
	return m, converter, err
}

// resetFilter excludes Resets in every version of managedFields.
func (t *Tracker) resetFilter(old Object) map[fieldpath.APIVersion]fieldpath.Filter {
	if len(t.Resets) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, path := range t.Resets {
		var elements []any
		for name := range strings.SplitSeq(path, ".") {
			elements = append(elements, name)
		}
		set.Insert(fieldpath.MakePathOrDie(elements...))
	}
	filter := fieldpath.NewExcludeSetFilter(set)
	out := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(t.GVK.GroupVersion().String()): filter}
	for _, version := range recordedVersions(old) {
		out[fieldpath.APIVersion(version)] = filter
	}
	return out
}

// live returns the object that a write is compared with: the stored or an empty one.
func (t *Tracker) live(old Object) (runtime.Object, error) {
	if old != nil {
		return old, nil
	}
	return versions{t.Codec}.New(t.GVK)
}

// Keep sets metadata.managedFields of an update that is not tracked: those of old unless the
// body has others or resets them ([] or [{}]). With subresource they are always those of old.
func Keep(obj, old metav1.Object, subresource bool) {
	fields := obj.GetManagedFields()
	switch {
	case subresource, fields == nil:
		obj.SetManagedFields(old.GetManagedFields())
	case len(fields) == 0, len(fields) == 1 && apiequality.Semantic.DeepEqual(fields[0], metav1.ManagedFieldsEntry{}):
		obj.SetManagedFields(nil)
	}
}

// versions implements the converter, creater and defaulter of upstream's manager with a Codec.
type versions struct{ codec Codec }

var _ runtime.ObjectConvertor = versions{}

// ConvertToVersion implements runtime.ObjectConvertor.
func (v versions) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if gv, ok := target.(schema.GroupVersion); ok {
		return v.codec.ConvertTo(in, gv)
	}
	from := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("codec", nil, target)
	}
	return v.codec.ConvertTo(in, to.GroupVersion())
}

// Convert implements runtime.ObjectConvertor; the manager does not use it.
func (v versions) Convert(in, out, _ any) error {
	return fmt.Errorf("convert %T into %T: not supported", in, out)
}

// ConvertFieldLabel implements runtime.ObjectConvertor; the manager does not use it.
func (v versions) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// New implements runtime.ObjectCreater.
func (v versions) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return v.codec.ConvertTo(u, gvk.GroupVersion())
}

// Default implements runtime.ObjectDefaulter. The caller sets defaults later; no manager owns
// them.
func (v versions) Default(runtime.Object) {}
