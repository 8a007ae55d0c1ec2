package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"portico/resource/rest"
)

// Annotations of the default storage class, the second one in its older form.
const (
	defaultStorageClass      = "storageclass.kubernetes.io/is-default-class"
	olderDefaultStorageClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// newDefaultStorageClass gives new claims without a storage class the default one.
func newDefaultStorageClass(cfg *Config) (rest.Admission, error) {
	classes := cfg.Resource(storagev1.GroupName, "storageclasses")
	return mutates(func(ctx context.Context, a *rest.Attributes) error {
		claim, ok := written[*corev1.PersistentVolumeClaim](a)
		if !ok || a.Operation != rest.Create || claim.Spec.StorageClassName != nil || has(claim.Annotations, corev1.BetaStorageClassAnnotation) {
			return nil
		}
		class, err := defaultClass[*storagev1.StorageClass](ctx, classes, defaultStorageClass, olderDefaultStorageClass)
		if err != nil {
			return forbidden(a, err)
		}
		if class != nil {
			claim.Spec.StorageClassName = &class.Name
		}
		return nil
	}), nil
}

// storageClassOf returns the name of the storage class of a claim; "": none.
func storageClassOf(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	return ptr.Deref(claim.Spec.StorageClassName, "")
}
