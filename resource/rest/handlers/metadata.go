package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstreamfields "k8s.io/apimachinery/pkg/util/managedfields"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
	"portico/resource/rest/managedfields"
)

// maxNameBase is the length to which a generateName is cut, in bytes, so that the name with
// five random characters is a valid label value.
const maxNameBase = 58

// generatedName returns a name for a generateName.
func generatedName(base string) string {
	if len(base) > maxNameBase {
		base = base[:maxNameBase]
	}
	return base + utilrand.String(5)
}

// placeInNamespace sets the namespace of the URL, "" for cluster scope. An object with
// another namespace is a 400.
func placeInNamespace(obj metav1.Object, namespace string) error {
	if own := obj.GetNamespace(); own != "" && namespace != "" && own != namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetNamespace(namespace)
	return nil
}

// checkName is the 400 for a body without the name in the URL.
func checkName(obj metav1.Object, name string) error {
	switch obj.GetName() {
	case name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", name))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), name))
}

// fitPath sets the namespace of the URL. An object with another namespace or name is a 400.
func (w *write) fitPath(obj metav1.Object) error {
	if err := placeInNamespace(obj, w.key.Namespace); err != nil {
		return err
	}
	return checkName(obj, w.key.Name)
}

// keepPlace is fitPath for an object after mutating admission, which may have changed its namespace and name; old is
// nil on create. Validation rejects another name of a stored object.
func (w *write) keepPlace(obj, old rest.Object) error {
	if old == nil {
		return w.fitPath(obj)
	}
	return placeInNamespace(obj, w.key.Namespace)
}

// keepSystemMetadata restores the metadata that an update cannot change. Validation refuses another uid.
func keepSystemMetadata(obj, old metav1.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	obj.SetSelfLink(old.GetSelfLink())
	obj.SetResourceVersion(old.GetResourceVersion())
}

// dedupeOwners removes duplicate owner references, with a warning.
func (w *write) dedupeOwners(ctx context.Context, obj metav1.Object, afterAdmission bool) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	var kept []metav1.OwnerReference
	var dropped []string
	seen := make(map[string]bool, len(refs))
	for _, ref := range refs {
		key, _ := json.Marshal(ref) // strings and booleans can always be encoded
		if seen[string(key)] {
			dropped = append(dropped, string(ref.UID))
			continue
		}
		seen[string(key)] = true
		kept = append(kept, ref)
	}
	if len(dropped) == 0 {
		return
	}
	obj.SetOwnerReferences(kept)
	when := ""
	if afterAdmission {
		when = " after mutating admission happens"
	}
	w.api.cfg.Warn(ctx, fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, "+
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s", when, strings.Join(dropped, ", ")))
}

// recordUpdate sets metadata.managedFields of obj, which replaces old (nil on create): the
// changed fields become those of the write's manager. If that fails the entries of old stay.
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
		// Usually the object is invalid and will be rejected.
		w.api.cfg.Logger.DebugContext(ctx, "managedFields not updated", "resource", w.res.GroupResource().String(), "key", w.key.String(), "err", err)
		obj.SetManagedFields(nil)
		if old != nil {
			obj.SetManagedFields(old.GetManagedFields())
		}
	}
}

// restoreRecord restores metadata.managedFields if mutating admission made them invalid.
func (w *write) restoreRecord(ctx context.Context, obj rest.Object, before managedfields.Record) {
	if before.Of(obj) {
		return
	}
	if err := upstreamfields.ValidateManagedFields(obj.GetManagedFields()); err != nil {
		before.Restore(obj)
		w.api.cfg.Warn(ctx, fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; "+
			"this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
	}
}

// tooMany is the 422 for an apply patch of an object with too many items to track; nil if err
// is another error.
func (w *write) tooMany(err error) error {
	var many *managedfields.TooManyError
	if !errors.As(err, &many) {
		return nil
	}
	return apierrors.NewInvalid(w.gvk.GroupKind(), w.key.Name, field.ErrorList{many.Field()})
}
