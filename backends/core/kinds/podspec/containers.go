// Package podspec iterates over the containers of a pod.
//
// Runs in: core.
package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Container is a container of a pod spec with its place there. Ephemeral containers have
// the fields of others.
type Container struct {
	*corev1.Container
	// Path is the path of the container below the path of the spec.
	Path func(spec *field.Path) *field.Path
	// Init and Ephemeral tell the three lists apart. Sidecar is set for an init container
	// that keeps running.
	Init, Ephemeral, Sidecar bool
}

// Containers returns the init containers, the containers and the ephemeral containers of a
// spec. They may be changed.
func Containers(spec *corev1.PodSpec) iter.Seq[Container] {
	at := func(list string, i int) func(*field.Path) *field.Path {
		return func(spec *field.Path) *field.Path { return spec.Child(list).Index(i) }
	}
	return func(yield func(Container) bool) {
		for i := range spec.InitContainers {
			c := &spec.InitContainers[i]
			sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
			if !yield(Container{Container: c, Path: at("initContainers", i), Init: true, Sidecar: sidecar}) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(Container{Container: &spec.Containers[i], Path: at("containers", i)}) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(Container{Container: c, Path: at("ephemeralContainers", i), Ephemeral: true}) {
				return
			}
		}
	}
}
