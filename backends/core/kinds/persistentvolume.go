package kinds

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// persistentVolumes is the row of v1 PersistentVolume. persistentvolume_validation.go has its
// rules.
func persistentVolumes() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{Versions: []string{"v1"}, Resource: "persistentvolumes", Kind: "PersistentVolume", ShortNames: []string{"pv"}},
		Strategy: rest.Strategy{
			Default: onDefault(defaultPersistentVolume),
			PrepareCreate: onCreate(func(pv *corev1.PersistentVolume) {
				pv.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: new(metav1.Now())}
			}),
			PrepareUpdate:  onUpdate(func(pv, old *corev1.PersistentVolume) { old.Status.DeepCopyInto(&pv.Status) }),
			Validate:       check(func(pv *corev1.PersistentVolume) field.ErrorList { return validatePersistentVolume(pv, nil) }),
			ValidateUpdate: checkUpdate(validatePersistentVolumeUpdate),
			Warnings:       warn(persistentVolumeWarnings),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{PrepareUpdate: onUpdate(preparePersistentVolumeStatus)}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Capacity", "string", "The size of the volume."),
			column("Access Modes", "string", "How nodes and pods may mount the volume."),
			column("Reclaim Policy", "string", "What becomes of the volume when its claim is deleted."),
			column("Status", "string", "The phase of the volume."),
			column("Claim", "string", "The claim that the volume is bound to."),
			column("StorageClass", "string", "The storage class of the volume."),
			column("VolumeAttributesClass", "string", "The volume attributes class of the volume."),
			column("Reason", "string", "Why the volume is in its phase."),
			ageColumn(),
			wide("VolumeMode", "string", "Whether the volume has a file system."),
		},
		Cells:       cells(persistentVolumeCells),
		FieldLabels: []string{"name"},
		Fields: fieldsOf(func(pv *corev1.PersistentVolume) map[string]string {
			return map[string]string{"name": pv.Name}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}

func defaultPersistentVolume(pv *corev1.PersistentVolume) {
	if pv.Status.Phase == "" {
		pv.Status.Phase = corev1.VolumePending
	}
	if pv.Spec.PersistentVolumeReclaimPolicy == "" {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	rules.Default(&pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	defaultVolumeSpec(&pv.Spec)
}

// defaultVolumeSpec sets the defaults of a spec that may be inline in a VolumeAttachment.
func defaultVolumeSpec(spec *corev1.PersistentVolumeSpec) {
	rules.RoundUp(spec.Capacity)
	set := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	if spec.HostPath != nil {
		rules.Default(&spec.HostPath.Type, corev1.HostPathUnset)
	}
	if s := spec.RBD; s != nil {
		set(&s.RBDPool, "rbd")
		set(&s.RadosUser, "admin")
		set(&s.Keyring, "/etc/ceph/keyring")
	}
	if spec.ISCSI != nil {
		set(&spec.ISCSI.ISCSIInterface, "default")
	}
	if spec.AzureDisk != nil {
		podspec.SetAzureDiskDefaults(spec.AzureDisk)
	}
	if s := spec.ScaleIO; s != nil {
		set(&s.StorageMode, "ThinProvisioned")
		set(&s.FSType, "xfs")
	}
}

// preparePersistentVolumeStatus keeps the time of the last change of the phase.
func preparePersistentVolumeStatus(pv, old *corev1.PersistentVolume) {
	old.Spec.DeepCopyInto(&pv.Spec)
	status, was := &pv.Status, &old.Status
	sent := status.LastPhaseTransitionTime
	switch same := status.Phase == was.Phase; {
	case same && sent == nil:
		status.LastPhaseTransitionTime = was.LastPhaseTransitionTime.DeepCopy()
	case !same && (sent == nil || sent.Equal(was.LastPhaseTransitionTime)):
		status.LastPhaseTransitionTime = new(metav1.Now())
	}
}

func persistentVolumeCells(pv *corev1.PersistentVolume) []any {
	spec, claim, phase := &pv.Spec, "", string(pv.Status.Phase)
	if spec.ClaimRef != nil {
		claim = spec.ClaimRef.Namespace + "/" + spec.ClaimRef.Name
	}
	if pv.DeletionTimestamp != nil {
		phase = terminating
	}
	return []any{
		pv.Name, storageCell(spec.Capacity), accessModesCell(spec.AccessModes), string(spec.PersistentVolumeReclaimPolicy), phase, claim,
		storageClassCell(pv.Annotations, spec.StorageClassName), ptr.Deref(spec.VolumeAttributesClassName, unset), pv.Status.Reason,
		age(pv.CreationTimestamp), string(ptr.Deref(spec.VolumeMode, unset)),
	}
}

// terminating is the phase shown of an object that is being deleted.
const terminating = "Terminating"

func storageCell(resources corev1.ResourceList) string {
	size := resources[corev1.ResourceStorage]
	return size.String()
}

// storageClassCell returns the storage class, which an annotation had in old releases.
func storageClassCell(annotations map[string]string, class string) string {
	if beta, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return beta
	}
	return class
}

// accessModesCell returns access modes in their short forms and in a fixed order.
func accessModesCell(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			out = append(out, m.short)
		}
	}
	return strings.Join(out, ",")
}

const storageClassAnnotationWarning = `deprecated since v1.8; use "storageClassName" attribute instead`

func persistentVolumeWarnings(pv *corev1.PersistentVolume) []string {
	var out []string
	add := func(path *field.Path, message string) { out = append(out, fmt.Sprintf("%s: %s", path, message)) }
	for _, a := range [][2]string{
		{corev1.BetaStorageClassAnnotation, storageClassAnnotationWarning},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, ok := pv.Annotations[a[0]]; ok {
			add(field.NewPath("metadata", "annotations").Key(a[0]), a[1])
		}
	}
	spec, path := &pv.Spec, field.NewPath("spec")
	if spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		add(path.Child("persistentVolumeReclaimPolicy"), "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			out = append(out, rules.NodeTermWarnings(&a.Required.NodeSelectorTerms[i], false, path.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))...)
		}
	}
	for _, s := range []struct {
		source                any
		name, deprecated, end string
	}{
		{spec.CephFS, "cephfs", "v1.28", "v1.31"}, {spec.PhotonPersistentDisk, "photonPersistentDisk", "v1.11", "v1.16"},
		{spec.ScaleIO, "scaleIO", "v1.16", "v1.22"}, {spec.StorageOS, "storageOS", "v1.22", "v1.25"},
		{spec.Glusterfs, "glusterfs", "v1.25", "v1.26"}, {spec.RBD, "rbd", "v1.28", "v1.31"},
	} {
		if !reflect.ValueOf(s.source).IsNil() {
			add(path.Child(s.name), fmt.Sprintf("deprecated in %s, non-functional in %s+", s.deprecated, s.end))
		}
	}
	return out
}
