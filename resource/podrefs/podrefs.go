// Package podrefs finds the objects that pods and volumes refer to by name: what the kubelet of
// their node has to read.
//
// Runs in: gateway, core.
package podrefs

import (
	"cmp"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Containers yields all containers of a pod.
func Containers(spec *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// Secrets returns the names of the secrets that a pod refers to, with duplicates.
func Secrets(spec *corev1.PodSpec) (names []string) {
	add := func(name string) {
		if name != "" {
			names = append(names, name)
		}
	}
	for _, r := range spec.ImagePullSecrets {
		add(r.Name)
	}
	for c := range Containers(spec) {
		for _, from := range c.EnvFrom {
			if from.SecretRef != nil {
				add(from.SecretRef.Name)
			}
		}
		for _, v := range c.Env {
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
				add(v.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i].VolumeSource
		switch {
		case v.Secret != nil:
			add(v.Secret.SecretName)
		case v.AzureFile != nil:
			add(v.AzureFile.SecretName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					add(s.Secret.Name)
				}
			}
		default:
			if r := secretOf(v); r != nil {
				add(r.Name)
			}
		}
	}
	return names
}

// secretOf returns the reference of a volume that names a secret beside itself; nil without one.
func secretOf(v *corev1.VolumeSource) *corev1.LocalObjectReference {
	switch {
	case v.CephFS != nil:
		return v.CephFS.SecretRef
	case v.Cinder != nil:
		return v.Cinder.SecretRef
	case v.FlexVolume != nil:
		return v.FlexVolume.SecretRef
	case v.RBD != nil:
		return v.RBD.SecretRef
	case v.ScaleIO != nil:
		return v.ScaleIO.SecretRef
	case v.ISCSI != nil:
		return v.ISCSI.SecretRef
	case v.StorageOS != nil:
		return v.StorageOS.SecretRef
	case v.CSI != nil:
		return v.CSI.NodePublishSecretRef
	}
	return nil
}

// ConfigMaps returns the names of the config maps that a pod refers to, with duplicates.
func ConfigMaps(spec *corev1.PodSpec) (names []string) {
	add := func(name string) {
		if name != "" {
			names = append(names, name)
		}
	}
	for c := range Containers(spec) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				add(from.ConfigMapRef.Name)
			}
		}
		for _, v := range c.Env {
			if v.ValueFrom != nil && v.ValueFrom.ConfigMapKeyRef != nil {
				add(v.ValueFrom.ConfigMapKeyRef.Name)
			}
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i].VolumeSource
		if v.ConfigMap != nil {
			add(v.ConfigMap.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(s.ConfigMap.Name)
			}
		}
	}
	return names
}

// Claims returns the names of the PersistentVolumeClaims of a pod, those of ephemeral volumes
// among them.
func Claims(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	return names
}

// ResourceClaims returns the names of the ResourceClaims that a pod refers to or that were created
// for it, from the templates of its spec.
func ResourceClaims(pod *corev1.Pod) (names []string) {
	for _, c := range pod.Spec.ResourceClaims {
		name := c.ResourceClaimName
		if name == nil && c.ResourceClaimTemplateName != nil {
			if i := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name }); i >= 0 {
				name = pod.Status.ResourceClaimStatuses[i].ResourceClaimName
			}
		}
		if name != nil {
			names = append(names, *name)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != "" {
		names = append(names, s.ResourceClaimName)
	}
	return names
}

// Secret is a secret of a volume.
type Secret struct{ Namespace, Name string }

// VolumeSecrets returns the secrets of a bound PersistentVolume that a kubelet reads.
func VolumeSecrets(pv *corev1.PersistentVolume) (secrets []Secret) {
	claimed := ""
	if pv.Spec.ClaimRef != nil {
		claimed = pv.Spec.ClaimRef.Namespace
	}
	add := func(r *corev1.SecretReference, namespace string) {
		if r != nil && r.Name != "" {
			secrets = append(secrets, Secret{cmp.Or(r.Namespace, namespace), r.Name})
		}
	}
	switch s := &pv.Spec.PersistentVolumeSource; {
	case s.AzureFile != nil:
		namespace := claimed
		if s.AzureFile.SecretNamespace != nil {
			namespace = cmp.Or(*s.AzureFile.SecretNamespace, claimed)
		}
		if s.AzureFile.SecretName != "" {
			secrets = append(secrets, Secret{namespace, s.AzureFile.SecretName})
		}
	case s.CephFS != nil:
		add(s.CephFS.SecretRef, claimed)
	case s.Cinder != nil:
		add(s.Cinder.SecretRef, "")
	case s.FlexVolume != nil:
		add(s.FlexVolume.SecretRef, claimed)
	case s.RBD != nil:
		add(s.RBD.SecretRef, claimed)
	case s.ScaleIO != nil:
		add(s.ScaleIO.SecretRef, claimed)
	case s.ISCSI != nil:
		add(s.ISCSI.SecretRef, claimed)
	case s.StorageOS != nil && s.StorageOS.SecretRef != nil && s.StorageOS.SecretRef.Name != "":
		secrets = append(secrets, Secret{s.StorageOS.SecretRef.Namespace, s.StorageOS.SecretRef.Name})
	case s.CSI != nil:
		add(s.CSI.NodePublishSecretRef, "")
		add(s.CSI.NodeStageSecretRef, "")
		add(s.CSI.NodeExpandSecretRef, "")
	}
	return secrets
}
