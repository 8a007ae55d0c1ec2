package plugins

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// newPersistentVolumeClaimResize permits claims to grow if they are bound and their storage class
// allows it.
func newPersistentVolumeClaimResize(cfg *Config) (rest.Admission, error) {
	classes := cfg.Resource(storagev1.GroupName, "storageclasses")
	return validates(func(ctx context.Context, a *rest.Attributes) error {
		claim, ok := written[*corev1.PersistentVolumeClaim](a)
		old, update := a.Old.(*corev1.PersistentVolumeClaim)
		if !ok || !update || claim.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) <= 0 {
			return nil
		}
		if old.Status.Phase != corev1.ClaimBound {
			//lint:ignore ST1005 The message is kube-apiserver's.
			return forbidden(a, errors.New("Only bound persistent volume claims can be expanded"))
		}
		if name := storageClassOf(claim); name != "" && name == storageClassOf(old) {
			class, err := rest.GetObject[*storagev1.StorageClass](ctx, classes, resource.Key{Name: name}, cached)
			if err == nil && ptr.Deref(class.AllowVolumeExpansion, false) {
				return nil
			}
		}
		return forbidden(a, errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
	}), nil
}
