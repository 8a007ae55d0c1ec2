package podspec

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// gates yield pointers to the fields that kube-apiserver does not keep by default. One that is
// set in the stored spec keeps all of its gate.
var gates = []func(spec *corev1.PodSpec, yield func(field any)){
	func(spec *corev1.PodSpec, yield func(any)) { yield(&spec.SchedulingGroup) },
	func(spec *corev1.PodSpec, yield func(any)) { yield(&spec.EvictionResponders) },
	func(spec *corev1.PodSpec, yield func(any)) {
		for i := range spec.Volumes {
			if e := spec.Volumes[i].EmptyDir; e != nil {
				yield(&e.Mode)
			}
		}
	},
	fileOwners,
	func(spec *corev1.PodSpec, yield func(any)) {
		for c := range Containers(spec) {
			for i := range c.VolumeMounts {
				yield(&c.VolumeMounts[i].BindMountOptions)
			}
		}
	},
	func(spec *corev1.PodSpec, yield func(any)) {
		for c := range Containers(spec) {
			for _, p := range probes(c.Container) {
				if p.GRPC != nil {
					yield(&p.GRPC.Mode)
				}
			}
		}
	},
	func(spec *corev1.PodSpec, yield func(any)) {
		for c := range Containers(spec) {
			for _, get := range httpGets(c.Container) {
				yield(&get.Protocol)
			}
		}
	},
	stopSignals,
}

// initContainerAnnotations had the init containers of pods in old releases.
var initContainerAnnotations = []string{
	"pod.beta.kubernetes.io/init-containers", "pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses", "pod.alpha.kubernetes.io/init-container-statuses",
}

// DropFields removes the fields that are not kept from a spec with its annotations. old is
// the stored spec, nil on create.
func DropFields(spec *corev1.PodSpec, annotations map[string]string, old *corev1.PodSpec) {
	for _, gate := range gates {
		used := false
		if old != nil {
			gate(old, func(field any) {
				v := reflect.ValueOf(field).Elem()
				used = used || !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0)
			})
		}
		if !used {
			gate(spec, func(field any) { reflect.ValueOf(field).Elem().SetZero() })
		}
	}
	DropAnnotations(annotations)
}

// DropAnnotations removes the annotations of a pod that are not kept.
func DropAnnotations(annotations map[string]string) {
	for _, name := range initContainerAnnotations {
		delete(annotations, name)
	}
}

// DropTemplateFields is DropFields for a template; old is nil on create.
func DropTemplateFields(t, old *corev1.PodTemplateSpec) {
	if old == nil {
		DropFields(&t.Spec, t.Annotations, nil)
	} else {
		DropFields(&t.Spec, t.Annotations, &old.Spec)
	}
}

// fileOwners yields the users that own the files of volumes.
func fileOwners(spec *corev1.PodSpec, yield func(any)) {
	keys := func(items []corev1.KeyToPath) {
		for i := range items {
			yield(&items[i].User)
		}
	}
	files := func(items []corev1.DownwardAPIVolumeFile) {
		for i := range items {
			yield(&items[i].User)
		}
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.Secret != nil:
			yield(&v.Secret.DefaultUser)
			keys(v.Secret.Items)
		case v.ConfigMap != nil:
			yield(&v.ConfigMap.DefaultUser)
			keys(v.ConfigMap.Items)
		case v.DownwardAPI != nil:
			yield(&v.DownwardAPI.DefaultUser)
			files(v.DownwardAPI.Items)
		case v.Projected != nil:
			yield(&v.Projected.DefaultUser)
			for j := range v.Projected.Sources {
				switch s := &v.Projected.Sources[j]; {
				case s.Secret != nil:
					keys(s.Secret.Items)
				case s.DownwardAPI != nil:
					files(s.DownwardAPI.Items)
				case s.ConfigMap != nil:
					keys(s.ConfigMap.Items)
				case s.ServiceAccountToken != nil:
					yield(&s.ServiceAccountToken.User)
				case s.ClusterTrustBundle != nil:
					yield(&s.ClusterTrustBundle.User)
				case s.PodCertificate != nil:
					yield(&s.PodCertificate.User)
				}
			}
		}
	}
}

// stopSignals yields the stop signals, and in place of one its lifecycle if that has nothing
// else.
func stopSignals(spec *corev1.PodSpec, yield func(any)) {
	for c := range Containers(spec) {
		switch l := c.Lifecycle; {
		case l == nil || l.StopSignal == nil:
		case l.PostStart == nil && l.PreStop == nil:
			yield(&c.Lifecycle)
		default:
			yield(&l.StopSignal)
		}
	}
}
