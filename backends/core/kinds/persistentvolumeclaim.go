package kinds

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

type claim = corev1.PersistentVolumeClaim

// persistentVolumeClaims is the row of v1 PersistentVolumeClaim. The phase of a new one is a default.
func persistentVolumeClaims(scheme *runtime.Scheme) *rest.Kind {
	return withDefaults(&rest.Kind{
		Codec: rest.Typed(scheme, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")),
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", ShortNames: []string{"pvc"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default: onDefault(defaultClaim),
			PrepareCreate: onCreate(func(c *claim) {
				c.Status = corev1.PersistentVolumeClaimStatus{}
				prepareDataSources(&c.Spec, &corev1.PersistentVolumeClaimSpec{})
			}),
			PrepareUpdate: onUpdate(func(c, old *claim) {
				old.Status.DeepCopyInto(&c.Status)
				prepareDataSources(&c.Spec, &old.Spec)
			}),
			Validate: check(func(c *claim) field.ErrorList {
				return podspec.ValidateClaimSpec(&c.Spec, field.NewPath("spec"), podspec.ClaimOptions{})
			}),
			ValidateUpdate: checkUpdate(validateClaimUpdate),
			Warnings:       warn(claimWarnings),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: onUpdate(func(c, old *claim) {
				old.Spec.DeepCopyInto(&c.Spec)
				if old.Status.HealthStatus == nil { // an alpha feature
					c.Status.HealthStatus = nil
				}
			}),
			ValidateUpdate: checkNew(validateClaimStatus),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Status", "string", "The phase of the claim."),
			column("Volume", "string", "The volume that the claim is bound to."),
			column("Capacity", "string", "The size of the volume."),
			column("Access Modes", "string", "How nodes and pods may mount the volume."),
			column("StorageClass", "string", "The storage class of the claim."),
			column("VolumeAttributesClass", "string", "The volume attributes class of the claim."),
			ageColumn(),
			wide("VolumeMode", "string", "Whether the volume has a file system."),
		},
		Cells:       cells(claimCells),
		FieldLabels: []string{"name"},
		Fields:      fieldsOf(func(c *claim) map[string]string { return map[string]string{"name": c.Name} }),

		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	})
}

func defaultClaim(c *claim) {
	if c.Status.Phase == "" {
		c.Status.Phase = corev1.ClaimPending
	}
	podspec.SetClaimDefaults(&c.Spec)
	rules.RoundUp(c.Status.Capacity)
	rules.RoundUp(c.Status.AllocatedResources)
}

// prepareDataSources makes dataSource and dataSourceRef equal, if one of them is set. A new
// dataSource without dataSourceRef is dropped unless it is a claim or a snapshot, as in
// releases before dataSourceRef.
func prepareDataSources(spec, old *corev1.PersistentVolumeClaimSpec) {
	// Sources in other namespaces are an alpha feature.
	if r := spec.DataSourceRef; r != nil && ptr.Deref(r.Namespace, "") != "" && old.DataSourceRef == nil {
		spec.DataSourceRef = nil
	}
	if old.DataSource == nil && old.DataSourceRef == nil && spec.DataSourceRef == nil && !isClaimOrSnapshot(spec.DataSource) {
		spec.DataSource = nil
	}
	switch source, ref := spec.DataSource, spec.DataSourceRef; {
	case source != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptrCopy(source.APIGroup), Kind: source.Kind, Name: source.Name}
	case ref != nil && source == nil && ptr.Deref(ref.Namespace, "") == "":
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptrCopy(ref.APIGroup), Kind: ref.Kind, Name: ref.Name}
	}
}

func ptrCopy[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func isClaimOrSnapshot(s *corev1.TypedLocalObjectReference) bool {
	if s == nil {
		return false
	}
	group := ptr.Deref(s.APIGroup, "")
	return s.Kind == "PersistentVolumeClaim" && group == "" || s.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
}

func claimCells(c *claim) []any {
	spec, phase, size, modes := &c.Spec, string(c.Status.Phase), "", ""
	if c.DeletionTimestamp != nil {
		phase = terminating
	}
	if spec.VolumeName != "" {
		size, modes = storageCell(c.Status.Capacity), accessModesCell(c.Status.AccessModes)
	}
	return []any{
		c.Name, phase, spec.VolumeName, size, modes, storageClassCell(c.Annotations, ptr.Deref(spec.StorageClassName, "")),
		ptr.Deref(spec.VolumeAttributesClassName, unset), age(c.CreationTimestamp), string(ptr.Deref(spec.VolumeMode, unset)),
	}
}

func claimWarnings(c *claim) []string {
	var out []string
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		out = append(out, fmt.Sprintf("%s: %s", field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation), storageClassAnnotationWarning))
	}
	return append(out, podspec.ClaimWarnings(&c.Spec, field.NewPath("spec"))...)
}

func validateClaimUpdate(c, old *claim) field.ErrorList {
	errs := podspec.ValidateClaimSpec(&c.Spec, field.NewPath("spec"), keptValues(&old.Spec))
	now, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	prepareDataSources(was, was) // as it is now read
	if was.VolumeName == "" {
		was.VolumeName = now.VolumeName // may be set once
	}
	errs = append(errs, validateClassChange(c, old, now, was)...)
	if c.Status.Phase == corev1.ClaimBound {
		if now.Resources.Requests != nil {
			now.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		now.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(now, was) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"),
			fmt.Sprintf("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", diff.Diff(*was, *now))))
	}
	size, oldSize, capacity := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage], old.Status.Capacity[corev1.ResourceStorage]
	if size.Cmp(oldSize) < 0 && size.Cmp(capacity) <= 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if class := c.Spec.VolumeAttributesClassName; old.Status.CurrentVolumeAttributesClassName != nil && ptr.Deref(class, "") == "" &&
		!ptr.Equal(class, old.Spec.VolumeAttributesClassName) {
		what := "nil"
		if class != nil {
			what = "empty string"
		}
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"),
			fmt.Sprintf("update to %s is forbidden when status.currentVolumeAttributesClassName is not nil", what)))
	}
	return errs
}

// validateClassChange validates a change of the storage class, which an annotation had in old
// releases, and makes the classes of the specs equal if it is permitted: a class may replace
// the annotation, or be set where there is none.
func validateClassChange(c, old *claim, now, was *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	const name = corev1.BetaStorageClassAnnotation
	annotation, annotated := c.Annotations[name]
	oldAnnotation, oldAnnotated := old.Annotations[name]
	set := was.StorageClassName == nil && now.StorageClassName != nil
	if set && (!oldAnnotated || *now.StorageClassName == oldAnnotation) {
		now.StorageClassName = nil
		if oldAnnotated && (!annotated || annotation == oldAnnotation) {
			return nil
		}
	}
	if annotation != oldAnnotation {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations", name), annotation, apivalidation.FieldImmutableErrorMsg)}
	}
	return nil
}

// keptValues returns the options for an update of a spec.
func keptValues(old *corev1.PersistentVolumeClaimSpec) podspec.ClaimOptions {
	invalid := metav1validation.ValidateLabelSelector(old.Selector, metav1validation.LabelSelectorValidationOptions{}, nil)
	return podspec.ClaimOptions{
		LabelValues: len(invalid) > 0,
		Groups:      old.DataSource != nil && old.DataSource.APIGroup != nil || old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil,
	}
}

// resizeStatuses are the states of the growth of a volume.
var resizeStatuses = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
}

func validateClaimStatus(c *claim) field.ErrorList {
	var errs field.ErrorList
	status, path := &c.Status, field.NewPath("status")
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("Spec", "accessModes"), "")) // as upstream
	}
	for _, name := range slices.Sorted(maps.Keys(status.Capacity)) {
		errs = append(errs, rules.BasicQuantity(status.Capacity[name], path.Child("capacity").Key(string(name)))...)
	}
	for _, name := range slices.Sorted(maps.Keys(status.AllocatedResourceStatuses)) {
		at := path.Child("allocatedResourceStatuses")
		errs = append(errs, validateClaimResource(name, at)...)
		if !slices.Contains(resizeStatuses, status.AllocatedResourceStatuses[name]) {
			errs = append(errs, field.NotSupported(at, name, slices.Sorted(slices.Values(resizeStatuses))))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(status.AllocatedResources)) {
		at := path.Child("allocatedResources")
		if wrong := validateClaimResource(name, at); len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		at = at.Key(string(name))
		wrong := rules.BasicQuantity(status.AllocatedResources[name], at)
		if len(wrong) == 0 {
			wrong = rules.Nonnegative(status.AllocatedResources[name], at)
		}
		errs = append(errs, wrong...)
	}
	return errs
}

// validateClaimResource requires storage, or a resource of another domain than kubernetes.io.
func validateClaimResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := rules.QualifiedName(string(name), path); len(errs) > 0 {
		return errs
	}
	if rules.Native(name) && name != corev1.ResourceStorage {
		return field.ErrorList{field.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
}
