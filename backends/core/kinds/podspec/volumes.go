package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// Member is one field of a union V of volume sources.
type Member[V any] struct {
	// below is the name of the field in errors of the source, and extra that in the error of
	// two sources. They differ for a few sources, as in kube-apiserver.
	below, extra string
	// always tells that the source is validated even if it is not the first.
	always bool
	// get returns whether the field is set, and the function that returns its errors.
	get func(V) (set bool, validate func(*field.Path) field.ErrorList)
}

// Source returns the member of a field that is a pointer; validate returns the errors of what
// it points at.
func Source[V, S any](name string, get func(V) *S, validate func(*S, *field.Path) field.ErrorList) Member[V] {
	return Member[V]{below: name, extra: name, get: func(v V) (bool, func(*field.Path) field.ErrorList) {
		s := get(v)
		return s != nil, func(path *field.Path) field.ErrorList { return validate(s, path) }
	}}
}

// Below sets the name of the field in the errors of the source.
func (m Member[V]) Below(name string) Member[V] {
	m.below = name
	return m
}

// Extra sets the name of the field in the error of two sources.
func (m Member[V]) Extra(name string) Member[V] {
	m.extra = name
	return m
}

// Always makes the source valid beside one before it.
func (m Member[V]) Always() Member[V] {
	m.always = true
	return m
}

// ValidateUnion requires one of the members to be set, and returns the errors of the first of
// them.
func ValidateUnion[V any](v V, members []Member[V], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	one := false
	for _, m := range members {
		switch set, validate := m.get(v); {
		case !set:
		case one && !m.always:
			errs = append(errs, field.Forbidden(path.Child(m.extra), "may not specify more than 1 volume type"))
		default:
			one = true
			errs = append(errs, validate(path.Child(m.below))...)
		}
	}
	if !one {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	return errs
}

// volume is a volume with what its rules depend on.
type volume struct {
	*corev1.Volume
	o Options
}

// volumeSources are the sources of volumes, in the order of kube-apiserver.
var volumeSources = []Member[volume]{
	Source("emptyDir", func(v volume) *corev1.EmptyDirVolumeSource { return v.EmptyDir }, validateEmptyDir),
	Source("hostPath", func(v volume) *corev1.HostPathVolumeSource { return v.HostPath }, ValidateHostPath),
	Source("gitRepo", func(v volume) *corev1.GitRepoVolumeSource { return v.GitRepo }, validateGitRepo),
	Source("gcePersistentDisk", func(v volume) *corev1.GCEPersistentDiskVolumeSource { return v.GCEPersistentDisk }, ValidateGCEDisk).Below("persistentDisk"),
	Source("awsElasticBlockStore", func(v volume) *corev1.AWSElasticBlockStoreVolumeSource { return v.AWSElasticBlockStore }, ValidateAWSDisk),
	Source("secret", func(v volume) *corev1.SecretVolumeSource { return v.Secret }, validateSecretFiles),
	Source("nfs", func(v volume) *corev1.NFSVolumeSource { return v.NFS }, ValidateNFS),
	Source("iscsi", func(v volume) *corev1.ISCSIVolumeSource { return v.ISCSI }, validateISCSI),
	Source("glusterfs", func(v volume) *corev1.GlusterfsVolumeSource { return v.Glusterfs }, validateGlusterfs),
	Source("flocker", func(v volume) *corev1.FlockerVolumeSource { return v.Flocker }, ValidateFlocker),
	Source("persistentVolumeClaim", func(v volume) *corev1.PersistentVolumeClaimVolumeSource { return v.PersistentVolumeClaim },
		func(s *corev1.PersistentVolumeClaimVolumeSource, path *field.Path) field.ErrorList {
			return Required(path, "claimName", s.ClaimName)
		}),
	Source("rbd", func(v volume) *corev1.RBDVolumeSource { return v.RBD }, validateRBD),
	Source("cinder", func(v volume) *corev1.CinderVolumeSource { return v.Cinder }, validateCinder),
	Source("cephfs", func(v volume) *corev1.CephFSVolumeSource { return v.CephFS }, validateCephFS).Extra("cephFS"),
	Source("quobyte", func(v volume) *corev1.QuobyteVolumeSource { return v.Quobyte }, ValidateQuobyte),
	Source("downwardAPI", func(v volume) *corev1.DownwardAPIVolumeSource { return v.DownwardAPI }, validateDownwardAPI).Extra("downwarAPI"),
	Source("fc", func(v volume) *corev1.FCVolumeSource { return v.FC }, ValidateFC),
	Source("flexVolume", func(v volume) *corev1.FlexVolumeSource { return v.FlexVolume }, validateFlex),
	Source("configMap", func(v volume) *corev1.ConfigMapVolumeSource { return v.ConfigMap }, validateConfigMapFiles),
	Source("azureFile", func(v volume) *corev1.AzureFileVolumeSource { return v.AzureFile }, validateAzureFile),
	Source("vsphereVolume", func(v volume) *corev1.VsphereVirtualDiskVolumeSource { return v.VsphereVolume }, ValidateVsphere),
	Source("photonPersistentDisk", func(v volume) *corev1.PhotonPersistentDiskVolumeSource { return v.PhotonPersistentDisk }, ValidatePhoton),
	Source("portworxVolume", func(v volume) *corev1.PortworxVolumeSource { return v.PortworxVolume }, ValidatePortworx),
	Source("azureDisk", func(v volume) *corev1.AzureDiskVolumeSource { return v.AzureDisk }, ValidateAzureDisk),
	Source("storageos", func(v volume) *corev1.StorageOSVolumeSource { return v.StorageOS }, validateStorageOS),
	Source("projected", func(v volume) *projected {
		if v.Projected == nil {
			return nil
		}
		return &projected{v.Projected, v.o}
	}, validateProjected),
	Source("scaleIO", func(v volume) *corev1.ScaleIOVolumeSource { return v.ScaleIO }, validateScaleIO),
	Source("csi", func(v volume) *corev1.CSIVolumeSource { return v.CSI }, validateCSI),
	Source("ephemeral", func(v volume) *corev1.EphemeralVolumeSource { return v.Ephemeral }, validateEphemeral),
	Source("image", func(v volume) *volume {
		if v.Image == nil {
			return nil
		}
		return &v
	}, validateImage),
}

// validateVolumes returns the volumes of a spec without errors by name, and the errors of all.
func validateVolumes(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path, o Options) (map[string]*corev1.Volume, field.ErrorList) {
	var all field.ErrorList
	// The name of the pod is not known before it exists.
	name := ""
	if meta != nil {
		name = meta.Name
	}
	claims := map[string]bool{} // those made for ephemeral volumes
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; name != "" && v.Ephemeral != nil {
			claims[name+"-"+v.Name] = true
		}
	}
	volumes := make(map[string]*corev1.Volume, len(spec.Volumes))
	for i := range spec.Volumes {
		v, at := &spec.Volumes[i], path.Index(i)
		errs := ValidateUnion(volume{v, o}, volumeSources, at)
		errs = append(errs, validateVolumeName(v, name, at.Child("name"))...)
		if volumes[v.Name] != nil {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(errs) == 0 {
			volumes[v.Name] = v
		}
		if c := v.PersistentVolumeClaim; c != nil && claims[c.ClaimName] {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), c.ClaimName, "must not reference a PVC that gets created for an ephemeral volume"))
		}
		all = append(all, errs...)
	}
	return volumes, all
}

// validateVolumeName returns the errors of the name of a volume of the pod with that name.
func validateVolumeName(v *corev1.Volume, pod string, path *field.Path) field.ErrorList {
	if v.Name == "" {
		return append(field.ErrorList{field.Required(path, "")}, initiatorTooLong(v, path)...)
	}
	errs := append(rules.DNSLabel(v.Name, path), initiatorTooLong(v, path)...)
	if v.Ephemeral != nil && pod != "" {
		claim := pod + "-" + v.Name
		for _, m := range validation.IsDNS1123Subdomain(claim) {
			errs = append(errs, field.Invalid(path, v.Name, fmt.Sprintf("PVC name %q: %v", claim, m)))
		}
	}
	return errs
}

func initiatorTooLong(v *corev1.Volume, path *field.Path) field.ErrorList {
	if s := v.ISCSI; s != nil && s.InitiatorName != nil && ISCSIPairTooLong(v.Name, s.TargetPortal) {
		return field.ErrorList{field.Invalid(path, v.Name, ISCSIPairMessage)}
	}
	return nil
}

func validateEphemeral(s *corev1.EphemeralVolumeSource, path *field.Path) field.ErrorList {
	path = path.Child("volumeClaimTemplate")
	t := s.VolumeClaimTemplate
	if t == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return ValidateClaimTemplate(t, path)
}

// ValidateClaimTemplate returns the errors of the template of a claim. Its metadata has labels
// and annotations only.
func ValidateClaimTemplate(t *corev1.PersistentVolumeClaimTemplate, path *field.Path) field.ErrorList {
	at := path.Child("metadata")
	errs := apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(t.Labels, at.Child("labels"))...)
	errs = append(errs, onlyFields(t.ObjectMeta, at, "Annotations", "Labels")...)
	return append(errs, ValidateClaimSpec(&t.Spec, path.Child("spec"), ClaimOptions{})...)
}
