package plugins

import (
	"context"
	"slices"

	"portico/resource/rest"
)

// protectionFinalizers keep objects of storage until their controller sees that nothing uses
// them. VolumeAttributesClasses get none, because no controller here would remove it.
var protectionFinalizers = map[string]string{
	"persistentvolumes":      "kubernetes.io/pv-protection",
	"persistentvolumeclaims": "kubernetes.io/pvc-protection",
}

// newStorageObjectInUseProtection gives new objects of storage a finalizer.
func newStorageObjectInUseProtection(*Config) (rest.Admission, error) {
	return mutates(func(_ context.Context, a *rest.Attributes) error {
		obj, ok := written[rest.Object](a)
		finalizer := protectionFinalizers[a.Kind.Resource]
		if ok && a.Operation == rest.Create && !slices.Contains(obj.GetFinalizers(), finalizer) {
			obj.SetFinalizers(append(obj.GetFinalizers(), finalizer))
		}
		return nil
	}), nil
}
