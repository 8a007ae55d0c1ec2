package kinds

import (
	"fmt"
	"maps"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/podspec"
)

// changeable are the fields of a pod that an update may change, for a message.
const changeable = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

var podSpecPath = field.NewPath("spec")

// validateWholePod returns the errors of a pod by itself; old is nil on create.
func validateWholePod(p, old *corev1.Pod) field.ErrorList {
	o := podOptions(old)
	errs := podspec.ValidateAnnotations(p.Annotations, &p.Spec, field.NewPath("metadata", "annotations"), o)
	errs = append(errs, podspec.Validate(&p.Spec, &p.ObjectMeta, podSpecPath, o)...)
	for i, v := range p.Spec.Volumes {
		if v.Projected == nil || p.Spec.ServiceAccountName != "" {
			continue
		}
		for j, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil {
				at := podSpecPath.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken")
				errs = append(errs, field.Forbidden(at, "must not be specified when serviceAccountName is not set"))
			}
		}
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		errs = append(errs, field.Invalid(podSpecPath.Child("terminationGracePeriodSeconds"), *s, apivalidation.IsNegativeErrorMsg))
	}
	return errs
}

func podOptions(old *corev1.Pod) podspec.Options {
	if old == nil {
		return podspec.Options{Pod: true}
	}
	return podspec.Options{Pod: true, Old: &old.Spec, OldMeta: &old.ObjectMeta}
}

func validatePod(p *corev1.Pod) field.ErrorList {
	errs := validateWholePod(p, nil)
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(podSpecPath.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(podSpecPath.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return append(errs, podspec.ValidateProfiles(&p.ObjectMeta, &p.Spec, podSpecPath)...)
}

// validatePodAnnotationUpdate forbids changes of the annotations that kubelets depend on.
func validatePodAnnotationUpdate(p, old *corev1.Pod) field.ErrorList {
	keys := maps.Clone(p.Annotations)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, old.Annotations)
	var errs field.ErrorList
	for key := range keys {
		now, has := p.Annotations[key]
		was, had := old.Annotations[key]
		what, verb := "mirror pod annotation", "remove or update"
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			what = "AppArmor annotations"
		} else if key != corev1.MirrorPodAnnotationKey {
			continue
		}
		if !had {
			verb = "add"
		}
		if has != had || now != was {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(key), "may not "+verb+" "+what))
		}
	}
	return errs
}

// validatePodUpdate permits changes of few fields.
func validatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	errs := append(validateWholePod(p, old), validatePodAnnotationUpdate(p, old)...)
	for _, list := range []struct {
		name     string
		now, was []corev1.Container
	}{{"containers", p.Spec.Containers, old.Spec.Containers}, {"initContainers", p.Spec.InitContainers, old.Spec.InitContainers}} {
		path := podSpecPath.Child(list.name)
		if len(list.now) != len(list.was) {
			return append(errs, field.Forbidden(path, "pod updates may not add or remove containers"))
		}
		for i, c := range list.now {
			if c.Image == "" {
				errs = append(errs, field.Required(path.Index(i).Child("image"), ""))
			}
		}
	}
	deadline := podSpecPath.Child("activeDeadlineSeconds")
	switch now, was := p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds; {
	case now == nil && was != nil:
		errs = append(errs, field.Invalid(deadline, now, "must not update from a positive integer to nil value"))
	case now != nil && (*now < 0 || *now > math.MaxInt32):
		return append(errs, field.Invalid(deadline, *now, validation.InclusiveRangeError(0, math.MaxInt32)))
	case now != nil && was != nil && *was < *now:
		return append(errs, field.Invalid(deadline, *now, "must be less than or equal to previous value"))
	}
	errs = append(errs, validateTolerationUpdate(p.Spec.Tolerations, old.Spec.Tolerations)...)
	errs = append(errs, validateGateUpdate(p.Spec.SchedulingGates, old.Spec.SchedulingGates)...)
	return append(errs, validateOtherFields(p, old)...)
}

// validateTolerationUpdate permits new tolerations and other periods of those that exist.
func validateTolerationUpdate(now, old []corev1.Toleration) field.ErrorList {
	for _, was := range old {
		kept := false
		for _, t := range now {
			was.TolerationSeconds = t.TolerationSeconds
			kept = kept || equality.Semantic.DeepEqual(t, was)
		}
		if !kept {
			return field.ErrorList{field.Forbidden(podSpecPath.Child("tolerations"), "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

// validateGateUpdate permits the removal of scheduling gates.
func validateGateUpdate(now, old []corev1.PodSchedulingGate) field.ErrorList {
	index := map[string]int{}
	for i, g := range now {
		index[g.Name] = i
	}
	for _, g := range old {
		delete(index, g.Name)
	}
	var errs field.ErrorList
	for name, i := range index {
		errs = append(errs, field.Forbidden(podSpecPath.Child("schedulingGates").Index(i).Child("name"),
			fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", name)))
	}
	return errs
}

// validateOtherFields compares the specs without the fields that may change.
func validateOtherFields(p, old *corev1.Pod) field.ErrorList {
	if equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return nil
	}
	was, now := &old.Spec, p.Spec.DeepCopy()
	for i := range now.Containers {
		now.Containers[i].Image = was.Containers[i].Image
	}
	for i := range now.InitContainers {
		now.InitContainers[i].Image = was.InitContainers[i].Image
	}
	now.ActiveDeadlineSeconds, now.SchedulingGates, now.Tolerations = was.ActiveDeadlineSeconds, was.SchedulingGates, was.Tolerations
	if n, w := now.TerminationGracePeriodSeconds, was.TerminationGracePeriodSeconds; n != nil && w != nil && *n == 1 && *w < 0 {
		now.TerminationGracePeriodSeconds = w
	}
	var errs field.ErrorList
	if len(was.SchedulingGates) > 0 {
		errs = validateGated(now, was)
	}
	if !equality.Semantic.DeepEqual(now, was) {
		errs = append(errs, field.Forbidden(podSpecPath, fmt.Sprintf("pod updates may not change fields other than %s\n%v", changeable, diff.Diff(*was, *now))))
	}
	return errs
}

// validateGated permits a pod that may not be scheduled yet to be restricted to fewer nodes.
// It restores the fields of now that it has checked.
func validateGated(now, was *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	for key, value := range was.NodeSelector {
		if v, ok := now.NodeSelector[key]; !ok || v != value {
			errs = append(errs, field.Invalid(podSpecPath.Child("nodeSelector"), now.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	now.NodeSelector = was.NodeSelector
	var nodes, oldNodes *corev1.NodeAffinity
	if now.Affinity != nil {
		nodes = now.Affinity.NodeAffinity
	}
	if was.Affinity != nil {
		oldNodes = was.Affinity.NodeAffinity
	}
	if equality.Semantic.DeepEqual(nodes, oldNodes) {
		return errs
	}
	errs = append(errs, validateAffinityUpdate(requiredTerms(nodes), requiredTerms(oldNodes))...)
	switch a := now.Affinity; {
	case a == nil:
		now.Affinity = &corev1.Affinity{NodeAffinity: oldNodes}
	case was.Affinity == nil && a.PodAffinity == nil && a.PodAntiAffinity == nil:
		now.Affinity = nil
	default:
		a.NodeAffinity = oldNodes
	}
	return errs
}

func requiredTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// validateAffinityUpdate permits additions to each term, or any terms where there were none.
func validateAffinityUpdate(now, old []corev1.NodeSelectorTerm) field.ErrorList {
	path := podSpecPath.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if len(old) > 0 && len(old) != len(now) {
		return field.ErrorList{field.Invalid(path, now, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	extends := func(now, old []corev1.NodeSelectorRequirement) bool {
		return len(now) >= len(old) && equality.Semantic.DeepEqual(now[:len(old)], old)
	}
	var errs field.ErrorList
	for i, was := range old {
		empty := len(was.MatchExpressions)+len(was.MatchFields) == 0
		filled := len(now[i].MatchExpressions)+len(now[i].MatchFields) > 0
		if empty && filled || !extends(now[i].MatchExpressions, was.MatchExpressions) || !extends(now[i].MatchFields, was.MatchFields) {
			errs = append(errs, field.Invalid(path.Index(i), now[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

// isMirror reports whether a pod is the copy of one that a kubelet has from a file.
func isMirror(p *corev1.Pod) bool {
	_, ok := p.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// validateEphemeralUpdate permits new ephemeral containers.
func validateEphemeralUpdate(p, old *corev1.Pod) field.ErrorList {
	if isMirror(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := append(validateWholePod(p, old), validatePodAnnotationUpdate(p, old)...)
	path, now := podSpecPath.Child("ephemeralContainers"), map[string]*corev1.EphemeralContainer{}
	for i := range p.Spec.EphemeralContainers {
		now[p.Spec.EphemeralContainers[i].Name] = &p.Spec.EphemeralContainers[i]
	}
	for _, was := range old.Spec.EphemeralContainers {
		if c := now[was.Name]; c == nil {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
		} else if !equality.Semantic.DeepEqual(was, *c) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", was.Name, diff.Diff(was, *c))))
		}
	}
	return errs
}
