package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// inClass follows the name of a storage class in the names of its quotas.
const inClass = ".storageclass.storage.k8s.io/"

var volumeClaimCount = countName("", "persistentvolumeclaims")

func volumeClaims(list generic.ListFuncByNamespace) quota.Evaluator {
	return &evaluator[*corev1.PersistentVolumeClaim]{
		resource: schema.GroupResource{Resource: "persistentvolumeclaims"}, list: list,
		names: func(name corev1.ResourceName) bool {
			own := []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
			return name == volumeClaimCount || slices.ContainsFunc(own, func(n corev1.ResourceName) bool {
				return name == n || strings.HasSuffix(string(name), inClass+string(n))
			})
		},
		handles: func(a admission.Attributes) bool {
			claim, old, ok := both[*corev1.PersistentVolumeClaim](a)
			return writes(a) || a.GetSubresource() == "status" && ok && VolumeClaimChanged(claim, old)
		},
		inScope: func(s corev1.ScopedResourceSelectorRequirement, claim *corev1.PersistentVolumeClaim) (bool, error) {
			if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
				return false, nil
			}
			return among(s, attributesClasses(claim)...)
		},
		usage: volumeClaimUsage,
	}
}

// volumeClaimUsage returns the usage of a claim, also by its storage class.
func volumeClaimUsage(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
	out := corev1.ResourceList{volumeClaimCount: count(1), corev1.ResourcePersistentVolumeClaims: count(1)}
	if size, ok := claimSize(claim); ok {
		out[corev1.ResourceRequestsStorage] = size
	}
	if class := volume.GetPersistentVolumeClaimClass(claim); class != "" {
		for _, name := range []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage} {
			if q, ok := out[name]; ok {
				out[corev1.ResourceName(class+inClass)+name] = q
			}
		}
	}
	return out
}

// claimSize returns the larger of the requested and the allocated size, in whole bytes.
func claimSize(claim *corev1.PersistentVolumeClaim) (apiresource.Quantity, bool) {
	size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if allocated, has := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && has && allocated.Cmp(size) > 0 {
		size = allocated
	}
	size = size.DeepCopy()
	size.RoundUp(0)
	return size, ok
}

// VolumeClaimChanged reports whether the usage or the scopes of a claim changed with its status.
func VolumeClaimChanged(claim, old *corev1.PersistentVolumeClaim) bool {
	return claim.Status.AllocatedResources.Storage().Cmp(*old.Status.AllocatedResources.Storage()) != 0 ||
		!slices.Equal(attributesClasses(claim), attributesClasses(old))
}

// attributesClasses returns the names of the VolumeAttributesClasses that a claim has, had or
// will have.
func attributesClasses(claim *corev1.PersistentVolumeClaim) []string {
	names := []string{ptr.Deref(claim.Spec.VolumeAttributesClassName, ""), ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "")}
	if m := claim.Status.ModifyVolumeStatus; m != nil {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}
