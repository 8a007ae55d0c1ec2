// Package podspec has the defaults and the rules of pod specs and pod templates, which Pod,
// PodTemplate, ReplicationController and the kinds of groups apps and batch share.
//
// SetDefaults sets what every pod spec gets, SetPodDefaults what only a Pod gets.
//
// Runs in: core.
package podspec

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	unversionedvalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// Options are what the rules of a pod spec depend on beside the spec.
type Options struct {
	// Pod is set for the spec of a Pod, and not for that of a template.
	Pod bool
	// Old and OldMeta are those of the stored object; nil on create. Values that older
	// releases accepted are kept if the stored object has them.
	Old     *corev1.PodSpec
	OldMeta *metav1.ObjectMeta
}

// stored reports whether the stored spec has a property.
func (o Options) stored(has func(old *corev1.PodSpec) bool) bool { return o.Old != nil && has(o.Old) }

// Validate returns the errors of a defaulted pod spec. meta is the metadata of the pod, nil
// for a template.
func Validate(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path, o Options) field.ErrorList {
	var errs field.ErrorList
	if spec.TerminationGracePeriodSeconds == nil {
		errs = append(errs, field.Required(path.Child("terminationGracePeriodSeconds"), ""))
	}
	volumes, volumeErrs := validateVolumes(spec, meta, path.Child("volumes"), o)
	errs = append(errs, volumeErrs...)
	errs = append(errs, validateResourceClaims(spec, meta, path.Child("resourceClaims"))...)
	errs = append(errs, validateContainers(spec, volumes, path, o)...)
	errs = append(errs, validateResources(spec, path, o)...)
	errs = append(errs, rules.Enum(spec.RestartPolicy, path.Child("restartPolicy"), corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, unversionedvalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validateSecurity(spec, path, o)...)
	errs = append(errs, validateNetwork(spec, path, o)...)
	errs = append(errs, validateScheduling(spec, path, o)...)
	return errs
}

// ValidateTemplate returns the errors of a defaulted pod template.
func ValidateTemplate(t *corev1.PodTemplateSpec, path *field.Path, o Options) field.ErrorList {
	errs := validateTemplateMeta(t, path, o)
	errs = append(errs, Validate(&t.Spec, nil, path.Child("spec"), o)...)
	errs = append(errs, ValidateProfiles(&t.ObjectMeta, &t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

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

// probes returns the probes of a container.
func probes(c *corev1.Container) []*corev1.Probe {
	all := []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}
	return slices.DeleteFunc(all, func(p *corev1.Probe) bool { return p == nil })
}

// httpGets returns the HTTP requests of the probes and the lifecycle of a container.
func httpGets(c *corev1.Container) []*corev1.HTTPGetAction {
	var all []*corev1.HTTPGetAction
	for _, p := range probes(c) {
		all = append(all, p.HTTPGet)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				all = append(all, h.HTTPGet)
			}
		}
	}
	return slices.DeleteFunc(all, func(get *corev1.HTTPGetAction) bool { return get == nil })
}
