package kinds

import (
	"context"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource/rest"
)

// csiDrivers is the row of storage.k8s.io/v1 CSIDriver. Its generation starts at 0.
func csiDrivers() *rest.Kind {
	return &rest.Kind{
		Info: storageInfo("csidrivers", "CSIDriver"),
		Strategy: rest.Strategy{
			Default: onDefault(defaultCSIDriver),
			PrepareUpdate: onUpdate(func(d, old *storagev1.CSIDriver) {
				if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
					d.Generation = old.Generation + 1
				}
			}),
			Validate:       check(validateCSIDriver),
			ValidateUpdate: checkUpdate(validateCSIDriverUpdate),
			Warnings:       csiDriverWarnings,
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("AttachRequired", "boolean", "Whether volumes are attached to nodes."),
			column("PodInfoOnMount", "boolean", "Whether the driver is told about the pod of a mount."),
			column("StorageCapacity", "boolean", "Whether the driver publishes its free capacity."),
			column("TokenRequests", "string", "The audiences of the service account tokens that the driver gets."),
			column("RequiresRepublish", "boolean", "Whether mounts are published again and again."),
			column("Modes", "string", "The kinds of volumes of the driver."),
			ageColumn(),
		},
		Cells:         cells(csiDriverCells),
		ReturnDeleted: true,
	}
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	spec := &d.Spec
	rules.Default(&spec.AttachRequired, true)
	rules.Default(&spec.PodInfoOnMount, false)
	rules.Default(&spec.StorageCapacity, false)
	rules.Default(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	rules.Default(&spec.RequiresRepublish, false)
	rules.Default(&spec.SELinuxMount, false)
	rules.Default(&spec.PreventPodSchedulingIfMissing, false)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func csiDriverCells(d *storagev1.CSIDriver) []any {
	spec, tokens, modes := &d.Spec, unset, none
	if spec.TokenRequests != nil {
		var audiences []string
		for _, t := range spec.TokenRequests {
			audiences = append(audiences, t.Audience)
		}
		tokens = strings.Join(audiences, ",")
	}
	var all []string
	for _, m := range spec.VolumeLifecycleModes {
		all = append(all, string(m))
	}
	if len(all) > 0 {
		modes = strings.Join(all, ",")
	}
	return []any{
		d.Name, ptr.Deref(spec.AttachRequired, true), ptr.Deref(spec.PodInfoOnMount, false), ptr.Deref(spec.StorageCapacity, false),
		tokens, ptr.Deref(spec.RequiresRepublish, false), modes, age(d.CreationTimestamp),
	}
}

// csiDriverWarnings warns of tokens that may be logged, if the write sets them.
func csiDriverWarnings(_ context.Context, obj, oldObj rest.Object) []string {
	spec := &obj.(*storagev1.CSIDriver).Spec
	if len(spec.TokenRequests) == 0 || spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	if old, ok := oldObj.(*storagev1.CSIDriver); ok && old != nil && equality.Semantic.DeepEqual(spec.TokenRequests, old.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}

func validateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	var errs field.ErrorList
	spec, path := &d.Spec, field.NewPath("spec")
	if spec.FSGroupPolicy != nil {
		errs = append(errs, rules.Supported(*spec.FSGroupPolicy, path.Child("fsGroupPolicy"),
			storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	audiences := map[string]bool{}
	for i, t := range spec.TokenRequests {
		at := path.Child("tokenRequests").Index(i)
		if audiences[t.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), t.Audience))
			continue
		}
		audiences[t.Audience] = true
		if t.ExpirationSeconds != nil {
			errs = append(errs, podspec.ValidateTokenLifetime(*t.ExpirationSeconds, at.Child("expirationSeconds"))...)
		}
	}
	for _, m := range spec.VolumeLifecycleModes {
		errs = append(errs, rules.Supported(m, path.Child("volumeLifecycleModes"), storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	if s := spec.NodeAllocatableUpdatePeriodSeconds; s != nil && *s < 10 {
		errs = append(errs, field.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *s, "must be greater than or equal to 10 seconds"))
	}
	if b := spec.ServiceAccountTokenInSecrets; b != nil && len(spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(path.Child("serviceAccountTokenInSecrets"), *b, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

func validateCSIDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateCSIDriver(d)
	errs = append(errs, apivalidation.ValidateImmutableField(d.Spec.AttachRequired, old.Spec.AttachRequired, path.Child("attachedRequired"))...) // as upstream
	return append(errs, apivalidation.ValidateImmutableField(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, path.Child("volumeLifecycleModes"))...)
}
