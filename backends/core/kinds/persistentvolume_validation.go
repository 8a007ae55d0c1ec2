package kinds

import (
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
)

// persistent is the spec of a persistent volume with what its rules depend on.
type persistent struct {
	*corev1.PersistentVolumeSpec
	name   string
	path   *field.Path
	inline bool
}

// itself returns v if it has a source, for rules that depend on more than the source.
func itself[S any](v persistent, source *S) *persistent {
	if source == nil {
		return nil
	}
	return &v
}

// persistentSources are the sources of persistent volumes, in the order of kube-apiserver.
var persistentSources = []podspec.Member[persistent]{
	podspec.Source("hostPath", func(v persistent) *corev1.HostPathVolumeSource { return v.HostPath }, podspec.ValidateHostPath),
	podspec.Source("gcePersistentDisk", func(v persistent) *corev1.GCEPersistentDiskVolumeSource { return v.GCEPersistentDisk }, podspec.ValidateGCEDisk).Below("persistentDisk"),
	podspec.Source("awsElasticBlockStore", func(v persistent) *corev1.AWSElasticBlockStoreVolumeSource { return v.AWSElasticBlockStore }, podspec.ValidateAWSDisk),
	podspec.Source("glusterfs", func(v persistent) *corev1.GlusterfsPersistentVolumeSource { return v.Glusterfs }, validateGlusterfs),
	podspec.Source("flocker", func(v persistent) *corev1.FlockerVolumeSource { return v.Flocker }, podspec.ValidateFlocker),
	podspec.Source("nfs", func(v persistent) *corev1.NFSVolumeSource { return v.NFS }, podspec.ValidateNFS),
	podspec.Source("rbd", func(v persistent) *corev1.RBDPersistentVolumeSource { return v.RBD }, podspec.ValidateRBD),
	podspec.Source("quobyte", func(v persistent) *corev1.QuobyteVolumeSource { return v.Quobyte }, podspec.ValidateQuobyte),
	podspec.Source("cephfs", func(v persistent) *corev1.CephFSPersistentVolumeSource { return v.CephFS }, podspec.ValidateCephFS).Extra("cephFS"),
	podspec.Source("iscsi", func(v persistent) *persistent { return itself(v, v.ISCSI) },
		func(v *persistent, path *field.Path) field.ErrorList {
			return podspec.ValidateISCSI(v.ISCSI, v.name, path)
		}),
	podspec.Source("cinder", func(v persistent) *corev1.CinderPersistentVolumeSource { return v.Cinder }, validateCinder),
	podspec.Source("fc", func(v persistent) *corev1.FCVolumeSource { return v.FC }, podspec.ValidateFC),
	podspec.Source("flexVolume", func(v persistent) *corev1.FlexPersistentVolumeSource { return v.FlexVolume }, podspec.ValidateFlex).Always(),
	podspec.Source("azureFile", func(v persistent) *corev1.AzureFilePersistentVolumeSource { return v.AzureFile }, validateAzureFile),
	podspec.Source("vsphereVolume", func(v persistent) *corev1.VsphereVirtualDiskVolumeSource { return v.VsphereVolume }, podspec.ValidateVsphere),
	podspec.Source("photonPersistentDisk", func(v persistent) *corev1.PhotonPersistentDiskVolumeSource { return v.PhotonPersistentDisk }, podspec.ValidatePhoton),
	podspec.Source("portworxVolume", func(v persistent) *corev1.PortworxVolumeSource { return v.PortworxVolume }, podspec.ValidatePortworx),
	podspec.Source("azureDisk", func(v persistent) *corev1.AzureDiskVolumeSource { return v.AzureDisk }, podspec.ValidateAzureDisk),
	podspec.Source("scaleIO", func(v persistent) *corev1.ScaleIOPersistentVolumeSource { return v.ScaleIO },
		func(s *corev1.ScaleIOPersistentVolumeSource, path *field.Path) field.ErrorList {
			return podspec.Required(path, "gateway", s.Gateway, "system", s.System, "volumeName", s.VolumeName)
		}),
	podspec.Source("local", func(v persistent) *persistent { return itself(v, v.Local) }, validateLocal),
	podspec.Source("storageos", func(v persistent) *corev1.StorageOSPersistentVolumeSource { return v.StorageOS }, validateStorageOS),
	podspec.Source("csi", func(v persistent) *corev1.CSIPersistentVolumeSource { return v.CSI }, validateCSIVolume),
}

func validateGlusterfs(s *corev1.GlusterfsPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := podspec.Required(path, "endpoints", s.EndpointsName, "path", s.Path)
	at := path.Child("endpointsNamespace")
	switch ns := s.EndpointsNamespace; {
	case ns == nil:
	case *ns == "":
		errs = append(errs, field.Invalid(at, *ns, "if the endpointnamespace is set, it must be a valid namespace name"))
	default:
		errs = append(errs, rules.DNSLabel(*ns, at)...)
	}
	return errs
}

func validateCinder(s *corev1.CinderPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := podspec.Required(path, "volumeID", s.VolumeID)
	if ref := s.SecretRef; ref != nil {
		errs = append(errs, podspec.Required(path.Child("secretRef"), "name", ref.Name, "namespace", ref.Namespace)...)
	}
	return errs
}

func validateAzureFile(s *corev1.AzureFilePersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := podspec.Required(path, "secretName", s.SecretName, "shareName", s.ShareName)
	if s.SecretNamespace != nil {
		errs = append(errs, podspec.Required(path, "secretNamespace", *s.SecretNamespace)...)
	}
	return errs
}

func validateLocal(v *persistent, path *field.Path) field.ErrorList {
	errs := append(podspec.Required(path, "path", v.Local.Path), rules.NoParent(v.Local.Path, path.Child("path"))...)
	if v.NodeAffinity == nil || v.inline {
		errs = append(errs, field.Required(v.path.Child("nodeAffinity"), "Local volume requires node affinity"))
	}
	return errs
}

func validateStorageOS(s *corev1.StorageOSPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := podspec.ValidateStorageOS(s.VolumeName, s.VolumeNamespace, path)
	if ref := s.SecretRef; ref != nil {
		errs = append(errs, podspec.Required(path.Child("secretRef"), "name", ref.Name, "namespace", ref.Namespace)...)
	}
	return errs
}

func validateCSIVolume(s *corev1.CSIPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := podspec.ValidateDriverName(s.Driver, path.Child("driver"))
	errs = append(errs, podspec.Required(path, "volumeHandle", s.VolumeHandle)...)
	for name, ref := range map[string]*corev1.SecretReference{
		"controllerPublishSecretRef": s.ControllerPublishSecretRef, "controllerExpandSecretRef": s.ControllerExpandSecretRef,
		"nodePublishSecretRef": s.NodePublishSecretRef, "nodeExpandSecretRef": s.NodeExpandSecretRef,
	} {
		if ref == nil {
			continue
		}
		at := path.Child(name)
		errs = append(errs, podspec.Required(at, "name", ref.Name, "namespace", ref.Namespace)...)
		if ref.Name != "" {
			errs = append(errs, rules.Subdomain(ref.Name, at.Child("name"))...)
		}
		if ref.Namespace != "" {
			errs = append(errs, rules.DNSLabel(ref.Namespace, at.Child("namespace"))...)
		}
	}
	return errs
}

// validatePersistentVolume validates a volume. old is nil on create.
func validatePersistentVolume(pv, old *corev1.PersistentVolume) field.ErrorList {
	spec, path := &pv.Spec, field.NewPath("spec")
	errs := validateVolumeSpec(persistent{PersistentVolumeSpec: spec, name: pv.Name, path: path})
	if len(spec.Capacity) == 0 {
		errs = append(errs, field.Required(path.Child("capacity"), ""))
	}
	if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(path.Child("capacity"), spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Capacity)) {
		at, size := path.Child("capacity").Key(string(name)), spec.Capacity[name]
		errs = append(errs, rules.BasicQuantity(size, at)...)
		errs = append(errs, podspec.ValidatePositive(size, at)...)
	}
	if p := spec.PersistentVolumeReclaimPolicy; p != "" {
		errs = append(errs, rules.Supported(p, path.Child("persistentVolumeReclaimPolicy"),
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	}
	errs = append(errs, validateVolumeAffinity(spec, old, path.Child("nodeAffinity"))...)
	if spec.StorageClassName != "" {
		errs = append(errs, rules.Subdomain(spec.StorageClassName, path.Child("storageClassName"))...)
	}
	errs = append(errs, podspec.ValidateVolumeMode(spec.VolumeMode, path.Child("volumeMode"))...)
	errs = append(errs, validateAttributesClass(spec, path)...)
	if _, ok := pv.Annotations[corev1.MountOptionAnnotation]; ok && !hasMountOptions(spec) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation), "may not specify mount options for this volume type"))
	}
	return errs
}

// hasMountOptions reports whether the source may have mount options in an annotation.
func hasMountOptions(s *corev1.PersistentVolumeSpec) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil || s.Quobyte != nil ||
		s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil || s.VsphereVolume != nil || s.AzureDisk != nil ||
		s.PhotonPersistentDisk != nil
}

func validateVolumeAffinity(spec *corev1.PersistentVolumeSpec, old *corev1.PersistentVolume, path *field.Path) field.ErrorList {
	a := spec.NodeAffinity
	switch {
	case a != nil && a.Required != nil:
		// Values that older releases accepted are kept.
		lax := old != nil && old.Spec.NodeAffinity != nil && old.Spec.NodeAffinity.Required != nil &&
			rules.InvalidNodeValues(old.Spec.NodeAffinity.Required.NodeSelectorTerms)
		return rules.NodeSelector(a.Required, lax, path.Child("required"))
	case a != nil:
		return field.ErrorList{field.Required(path.Child("required"), "must specify required node constraints")}
	}
	return nil
}

// validateVolumeSpec returns the errors that specs of volumes and inline specs can have.
func validateVolumeSpec(v persistent) field.ErrorList {
	at := v.path
	var errs field.ErrorList
	if len(v.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, podspec.ValidateAccessModes(v.AccessModes, at.Child("accessModes"))...)
	errs = append(errs, podspec.ValidateUnion(v, persistentSources, at)...)
	if v.HostPath != nil && path.Clean(v.HostPath.Path) == "/" && v.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	return errs
}

// validateAttributesClass returns the errors of the class of a volume that is not inline.
func validateAttributesClass(spec *corev1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	class := spec.VolumeAttributesClassName
	if class == nil {
		return nil
	}
	var errs field.ErrorList
	if at := path.Child("volumeAttributesClassName"); *class == "" {
		errs = append(errs, field.Required(at, "an empty string is disallowed"))
	} else {
		errs = append(errs, rules.Subdomain(*class, at)...)
	}
	if spec.CSI == nil {
		errs = append(errs, field.Required(path.Child("csi"), "has to be specified when using volumeAttributesClassName"))
	}
	return errs
}

// validateInlineVolume returns the errors of the spec of a volume without an object, which is
// a CSI volume.
func validateInlineVolume(spec *corev1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	errs := validateVolumeSpec(persistent{PersistentVolumeSpec: spec, path: path, inline: true})
	if spec.CSI == nil {
		errs = append(errs, field.Required(path.Child("csi"), "has to be specified in the context of inline volumes"))
	}
	for name, set := range map[string]bool{
		"claimRef": spec.ClaimRef != nil, "capacity": len(spec.Capacity) > 0, "nodeAffinity": spec.NodeAffinity != nil,
		"storageClassName": spec.StorageClassName != "",
	} {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "may not be specified in the context of inline volumes"))
		}
	}
	if p := spec.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(path.Child("persistentVolumeReclaimPolicy"), "may only be Retain in the context of inline volumes"))
	}
	if ptr.Deref(spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(path.Child("volumeMode"), "may not specify volumeMode other than Filesystem in the context of inline volumes"))
	}
	return errs
}

func validatePersistentVolumeUpdate(pv, old *corev1.PersistentVolume) field.ErrorList {
	errs := validatePersistentVolume(pv, old)
	source := pv.Spec.PersistentVolumeSource
	if now, was := source.CSI, old.Spec.CSI; now != nil && was != nil && was.ControllerExpandSecretRef == nil && now.ControllerExpandSecretRef != nil {
		// The reference may be set once.
		csi := *now
		csi.ControllerExpandSecretRef = nil
		source.CSI = &csi
	}
	if was := old.Spec.PersistentVolumeSource; !equality.Semantic.DeepEqual(source, was) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"), fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(was, source))))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(pv.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if affinity := old.Spec.NodeAffinity; affinity != nil && !sameAffinity(pv.Spec.NodeAffinity, affinity) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), pv.Spec.NodeAffinity, apivalidation.FieldImmutableErrorMsg+", except for updating from beta label to GA"))
	}
	if pv.Spec.VolumeAttributesClassName == nil && old.Spec.VolumeAttributesClassName != nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// sameAffinity reports whether the affinity of a volume is the old one, apart from deprecated
// labels that are replaced.
func sameAffinity(now, old *corev1.VolumeNodeAffinity) bool {
	old = old.DeepCopy()
	if now != nil && now.Required != nil && old.Required != nil {
		for i := range min(len(now.Required.NodeSelectorTerms), len(old.Required.NodeSelectorTerms)) {
			a, b := &now.Required.NodeSelectorTerms[i], &old.Required.NodeSelectorTerms[i]
			replaceLabels(a.MatchExpressions, b.MatchExpressions)
			replaceLabels(a.MatchFields, b.MatchFields)
		}
	}
	return equality.Semantic.DeepEqual(now, old)
}

// replacedLabels are deprecated labels of nodes and their successors.
var replacedLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType: corev1.LabelInstanceTypeStable, "beta." + corev1.LabelOSStable: corev1.LabelOSStable,
	"beta." + corev1.LabelArchStable: corev1.LabelArchStable,
}

func replaceLabels(now, old []corev1.NodeSelectorRequirement) {
	for i := range min(len(now), len(old)) {
		if replacedLabels[old[i].Key] == now[i].Key {
			old[i].Key = now[i].Key
		}
	}
}
