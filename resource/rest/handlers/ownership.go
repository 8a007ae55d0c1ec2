package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	upstreamfields "k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
	"portico/resource/rest/managedfields"
)

// resets returns the top-level fields that writes of the kind, or of a subresource of
// it, do not change and therefore do not own.
func resets(k *rest.Kind, version string, sub *rest.Subresource) []string {
	strategy := &k.Strategy
	if sub != nil {
		strategy = sub.Strategy
	}
	if strategy == nil { // a view of another kind, or a call
		return nil
	}
	hasStatus := slices.ContainsFunc(k.Subresources, func(s rest.Subresource) bool { return s.Name == "status" && s.Strategy != nil })
	switch {
	case strategy.Resets != nil:
		return strategy.Resets
	case sub != nil && sub.Name == "status" && k.HasGoType(version):
		return []string{"spec"}
	case sub != nil && sub.Name == "status":
		return []string{"metadata", "spec"}
	case hasStatus:
		return []string{"status"}
	}
	return nil
}

// newTracker returns the tracker of the fields that w changes.
func (w *write) newTracker(ownership func() (upstreamfields.TypeConverter, error), resets []string) *managedfields.Tracker {
	t := &managedfields.Tracker{
		Types: ownership, GVK: w.gvk, Manager: w.managerName, Subresource: w.subresource, Resets: resets, Projected: w.projection != nil,
	}
	if codec, ok := w.body.Codec.(rest.Versioned); ok {
		t.Codec = codec
	}
	return t
}

// recordUpdate sets metadata.managedFields of obj, which replaces old (nil: it is new),
// and records the fields that this write changes as its manager's. If that is not
// possible the stored record stays: no write fails because of it.
func (w *write) recordUpdate(ctx context.Context, obj, old rest.Object) {
	switch {
	case w.applied:
		return
	case !w.tracker.Enabled():
		if old != nil {
			managedfields.Keep(obj, old, w.subresource != "")
		}
		return
	case w.dropped:
		obj.SetManagedFields(nil)
		return
	}
	if err := w.tracker.Update(obj, old); err != nil {
		// Mostly the object is invalid and will be rejected for that.
		w.api.logger.DebugContext(ctx, "field ownership was not recorded", "resource", w.res.GroupResource().String(), "key", w.key.String(), "err", err)
		obj.SetManagedFields(nil)
		if old != nil {
			obj.SetManagedFields(old.GetManagedFields())
		}
	}
}

// restoreRecord restores metadata.managedFields if mutating admission has made it
// invalid.
func (w *write) restoreRecord(ctx context.Context, obj rest.Object, before managedfields.Record) {
	if before.Of(obj) {
		return
	}
	if err := upstreamfields.ValidateManagedFields(obj.GetManagedFields()); err != nil {
		before.Restore(obj)
		w.api.warn(ctx, fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; "+
			"this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
	}
}

// tooMany is the 422 for an apply patch of an object with too many items to be
// tracked; nil if err says something else.
func (w *write) tooMany(err error) error {
	var many *managedfields.TooManyError
	if !errors.As(err, &many) {
		return nil
	}
	return apierrors.NewInvalid(w.gvk.GroupKind(), w.key.Name, field.ErrorList{many.Field()})
}
