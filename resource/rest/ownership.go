package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// managerOf is who owns what a write changes: the fieldManager it names, else
// the printable part of its user agent before the first "/", as much of it as a
// manager's name may have. "" becomes "unknown" when it is recorded.
func managerOf(fieldManager, userAgent string) string {
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

// resets are the top-level fields that a writer of the kind, or of a view of
// it, owns nothing of, because the write does not change them.
func (k *Kind) resets(version string, sub *Subresource) []string {
	strategy := &k.Strategy
	if sub != nil {
		strategy = sub.Strategy
	}
	if strategy == nil { // another kind, or a call
		return nil
	}
	hasStatus := slices.ContainsFunc(k.Subresources, func(s Subresource) bool { return s.Name == "status" && s.Strategy != nil })
	switch {
	case strategy.Resets != nil:
		return strategy.Resets
	case sub != nil && sub.Name == "status" && k.typed(version):
		return []string{"spec"}
	case sub != nil && sub.Name == "status":
		return []string{"metadata", "spec"}
	case hasStatus:
		return []string{"status"}
	}
	return nil
}

// fieldManager returns upstream's tracker of ownership for this write. It is
// made for each write: that costs little, and nothing holds on to the converter.
func (w *write) fieldManager(old Object) (*managedfields.FieldManager, *boundedTypes, error) {
	types, err := w.ownership()
	if err != nil {
		return nil, nil, fmt.Errorf("load schema of field ownership: %w", err)
	}
	if old != nil {
		if err := w.boundRecord(types, old); err != nil {
			return nil, nil, err
		}
	}
	converter := &boundedTypes{TypeConverter: types}
	codec, ok := w.body.Codec.(Versioned)
	if !ok {
		return nil, nil, fmt.Errorf("track field ownership: %T cannot convert", w.body.Codec)
	}
	c := versions{codec}
	// The manager "for definitions" is the one whose hub is a version like any
	// other, of whichever group; upstream's other one has an internal version.
	m, err := managedfields.NewDefaultCRDFieldManager(converter, c, c, c, w.gvk, codec.Hub(), w.subresource, w.ignored(old))
	return m, converter, err
}

// ignored makes a filter of the fields that this write resets, for every
// version that ownership is recorded in.
func (w *write) ignored(old Object) map[fieldpath.APIVersion]fieldpath.Filter {
	if len(w.resets) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, name := range w.resets {
		set.Insert(fieldpath.MakePathOrDie(name))
	}
	filter := fieldpath.NewExcludeSetFilter(set)
	out := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(w.gvk.GroupVersion().String()): filter}
	for _, version := range recordedVersions(old) {
		out[fieldpath.APIVersion(version)] = filter
	}
	return out
}

// own settles metadata.managedFields of obj, which is to replace old (nil: there
// is none), and records what this write changes as its manager's. Nobody's write
// fails because that cannot be recorded: then what was known stays.
func (w *write) own(ctx context.Context, obj, old Object) {
	switch {
	case w.applied:
		return
	case w.ownership == nil:
		if old != nil {
			settleManagedFields(obj, old, w.subresource != "")
		}
		return
	case w.disowned:
		obj.SetManagedFields(nil)
		return
	}
	if err := w.record(obj, old); err != nil {
		// Mostly the object is not valid, and will be refused for that.
		w.api.logger.DebugContext(ctx, "field ownership was not recorded", "resource", w.res.GroupResource().String(), "key", w.key.String(), "err", err)
		obj.SetManagedFields(nil)
		if old != nil {
			obj.SetManagedFields(old.GetManagedFields())
		}
	}
}

func (w *write) record(obj, old Object) error {
	if u, ok := obj.(*unstructured.Unstructured); ok && old == nil {
		if done, err := w.recordNew(u); done || err != nil {
			w.recorded = recordOf(u)
			return err
		}
	}
	if done, err := w.recordChange(obj, old); done || err != nil {
		if _, ok := obj.(*unstructured.Unstructured); ok {
			w.recorded = recordOf(obj)
		}
		return err
	}
	m, types, err := w.fieldManager(old)
	if err != nil {
		return err
	}
	live, err := w.live(old)
	if err != nil {
		return err
	}
	if err := w.boundRecord(types.TypeConverter, obj); err != nil {
		return err
	}
	// What came from the store is valid, and so is what the tracker adds.
	valid := knownRecord(obj, old)
	// The result is obj itself.
	if _, err = m.Update(live, obj, w.owner); err == nil && valid {
		w.recorded = recordOf(obj)
	}
	return err
}

// live is what a write is compared with: the stored object, or an empty one.
func (w *write) live(old Object) (runtime.Object, error) {
	if old != nil {
		return old, nil
	}
	return versions{w.body.Codec.(Versioned)}.New(w.gvk)
}

// ownedAfter takes back what mutating admission has done to the record of
// ownership, if nobody could read that any more.
func (w *write) ownedAfter(ctx context.Context, obj Object, before ownerRecord) {
	if before.stands(obj) {
		return
	}
	if err := managedfields.ValidateManagedFields(obj.GetManagedFields()); err != nil {
		before.restore(obj)
		w.api.warn(ctx, fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; "+
			"this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
	}
}

// settleManagedFields decides metadata.managedFields of an update that nobody
// tracks: what is stored stays, unless the body resets it ([] or [{}]) or brings
// its own; a view (status) never touches it.
func settleManagedFields(obj, old metav1.Object, view bool) {
	fields := obj.GetManagedFields()
	switch {
	case view, fields == nil:
		obj.SetManagedFields(old.GetManagedFields())
	case len(fields) == 0, len(fields) == 1 && apiequality.Semantic.DeepEqual(fields[0], metav1.ManagedFieldsEntry{}):
		obj.SetManagedFields(nil)
	}
}

// versions lets upstream's tracker convert, create and default through a codec.
type versions struct{ codec Versioned }

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

// Convert implements runtime.ObjectConvertor; the tracker does not use it.
func (v versions) Convert(in, out, _ any) error {
	return fmt.Errorf("convert %T into %T: not supported", in, out)
}

// ConvertFieldLabel implements runtime.ObjectConvertor; the tracker does not
// use it.
func (v versions) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// New implements runtime.ObjectCreater.
func (v versions) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return v.codec.ConvertTo(u, gvk.GroupVersion())
}

// Default implements runtime.ObjectDefaulter. Defaults are filled in after the
// tracker is done, in the hub form; they belong to nobody either way.
func (v versions) Default(runtime.Object) {}
