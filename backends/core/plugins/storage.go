package plugins

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	k8sadmission "k8s.io/apiserver/pkg/admission"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/rest"
)

// This file has DefaultStorageClass and StorageObjectInUseProtection: the packages of kube-apiserver's
// link the volume code of kubelet.

// mutates is a plugin for new objects without a second phase.
type mutates func(ctx context.Context, a *rest.Attributes) error

// Mutate implements rest.Admission.
func (f mutates) Mutate(ctx context.Context, a *rest.Attributes) error {
	if a.Operation != rest.Create || a.Action != nil && a.Action.Subresource != "" {
		return nil
	}
	return f(ctx, a)
}

// Validate implements rest.Admission.
func (mutates) Validate(context.Context, *rest.Attributes) error { return nil }

// Annotations of the default storage class, the second one in its older form.
const (
	defaultStorageClass      = "storageclass.kubernetes.io/is-default-class"
	olderDefaultStorageClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// newDefaultStorageClass gives new claims without a storage class the default one. If there are several,
// it is the newest, and the first by name among classes of one second.
func newDefaultStorageClass(cfg *Config) (rest.Admission, error) {
	classes := cfg.Resource(storagev1.GroupName, "storageclasses")
	return mutates(func(ctx context.Context, a *rest.Attributes) error {
		claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
		if !ok || claim.Spec.StorageClassName != nil {
			return nil
		}
		if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named {
			return nil
		}
		all, err := rest.ListObjects[*storagev1.StorageClass](ctx, classes, resource.ListOptions{At: resource.At{Freshness: resource.Any}})
		if err != nil {
			return k8sadmission.NewForbidden(admission.NewAttributes(a), err)
		}
		all = slices.DeleteFunc(all, func(c *storagev1.StorageClass) bool {
			return c.Annotations[defaultStorageClass] != "true" && c.Annotations[olderDefaultStorageClass] != "true"
		})
		if len(all) > 0 {
			claim.Spec.StorageClassName = &slices.MinFunc(all, func(a, b *storagev1.StorageClass) int {
				return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
			}).Name
		}
		return nil
	}), nil
}

// protectionFinalizers keep objects of storage until their controller sees that nothing uses
// them. VolumeAttributesClasses get none, because no controller here would remove it.
var protectionFinalizers = map[string]string{
	"persistentvolumes":      "kubernetes.io/pv-protection",
	"persistentvolumeclaims": "kubernetes.io/pvc-protection",
}

// newStorageObjectInUseProtection gives new objects of storage a finalizer.
func newStorageObjectInUseProtection(*Config) (rest.Admission, error) {
	return mutates(func(_ context.Context, a *rest.Attributes) error {
		obj, ok := a.Object.(rest.Object)
		if finalizer := protectionFinalizers[a.Kind.Resource]; ok && !slices.Contains(obj.GetFinalizers(), finalizer) {
			obj.SetFinalizers(append(obj.GetFinalizers(), finalizer))
		}
		return nil
	}), nil
}
