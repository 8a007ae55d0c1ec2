package podspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// tolerationsAnnotation had the tolerations of pods in old releases.
const tolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerations"

// appArmorAnnotation begins the annotations that have the AppArmor profile of a container.
const appArmorAnnotation = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

// validateTemplateMeta returns the errors of the metadata of a template, with the paths of
// upstream, which leave out "metadata".
func validateTemplateMeta(t *corev1.PodTemplateSpec, path *field.Path, o Options) field.ErrorList {
	errs := metav1validation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	return append(errs, ValidateAnnotations(t.Annotations, &t.Spec, path.Child("annotations"), o)...)
}

// ValidateAnnotations returns the errors of the annotations that have a meaning for pods.
func ValidateAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	var errs field.ErrorList
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && spec.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set"))
	}
	if text := annotations[tolerationsAnnotation]; text != "" {
		var tolerations []corev1.Toleration
		if err := json.Unmarshal([]byte(text), &tolerations); err != nil {
			errs = append(errs, field.Invalid(path, tolerationsAnnotation, err.Error()))
		} else {
			errs = append(errs, ValidateTolerations(tolerations, path.Child(tolerationsAnnotation), o.stored(comparesTaints))...)
		}
	}
	if !validDeletionCost(annotations) && (o.OldMeta == nil || validDeletionCost(o.OldMeta.Annotations)) {
		errs = append(errs, field.Invalid(path.Key(corev1.PodDeletionCost), annotations[corev1.PodDeletionCost], "must be a 32bit integer"))
	}
	for key, value := range annotations {
		switch {
		case key == corev1.SeccompPodAnnotationKey, strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix):
			errs = append(errs, validateSeccompName(value, path.Child(key))...)
		case strings.HasPrefix(key, appArmorAnnotation):
			errs = append(errs, validateAppArmorName(spec, key, value, path.Key(key))...)
		}
	}
	return errs
}

// validDeletionCost reports whether the deletion cost, if there is one, is an integer of 32
// bits without plus sign and leading zeros.
func validDeletionCost(annotations map[string]string) bool {
	text, ok := annotations[corev1.PodDeletionCost]
	if !ok {
		return true
	}
	_, err := strconv.ParseInt(text, 10, 32)
	return err == nil && (text == "0" || text[0] != '0' && text[0] != '+')
}

// validateSeccompName returns the errors of the profile that an annotation names.
func validateSeccompName(name string, path *field.Path) field.ErrorList {
	switch name {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return nil
	}
	if file, ok := strings.CutPrefix(name, corev1.SeccompLocalhostProfileNamePrefix); ok {
		return rules.RelativePath(file, path)
	}
	return field.ErrorList{field.Invalid(path, name, "must be a valid seccomp profile")}
}

func validateAppArmorName(spec *corev1.PodSpec, key, profile string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	name, found := strings.TrimPrefix(key, appArmorAnnotation), false
	for c := range Containers(spec) {
		found = found || c.Name == name
	}
	if !found {
		errs = append(errs, field.Invalid(path, name, "container not found"))
	}
	switch {
	case profile == "", profile == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, profile == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
	case !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		errs = append(errs, field.Invalid(path, profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile)))
	}
	return errs
}

// ValidateProfiles requires that annotations and fields name the same profiles.
func ValidateProfiles(meta *metav1.ObjectMeta, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	pod := spec.SecurityContext
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	seccomp := func(key string, profile *corev1.SeccompProfile, path *field.Path) {
		if text, ok := meta.Annotations[key]; ok && profile != nil {
			values := []string{corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault}
			errs = append(errs, sameProfile("seccomp", text, string(profile.Type), profile.LocalhostProfile, values, path.Child("seccompProfile"))...)
		}
	}
	seccomp(corev1.SeccompPodAnnotationKey, pod.SeccompProfile, path.Child("securityContext"))
	for c := range Containers(spec) {
		sc, at := c.SecurityContext, c.Path(path).Child("securityContext")
		if sc == nil {
			sc = &corev1.SecurityContext{}
		}
		seccomp(corev1.SeccompContainerAnnotationKeyPrefix+c.Name, sc.SeccompProfile, at)
		profile := sc.AppArmorProfile
		if profile == nil {
			profile = pod.AppArmorProfile
		}
		text, ok := meta.Annotations[appArmorAnnotation+c.Name]
		if !ok || profile == nil || isOS(spec, corev1.Windows) {
			continue
		}
		values := []string{corev1.DeprecatedAppArmorBetaProfileRuntimeDefault}
		errs = append(errs, sameProfile("apparmor", text, string(profile.Type), profile.LocalhostProfile, values, at.Child("appArmorProfile"))...)
	}
	return errs
}

// sameProfile compares the text of an annotation with a profile. The types and prefixes of
// seccomp and AppArmor are the same.
func sameProfile(system, text, kind string, local *string, runtimeDefault []string, path *field.Path) field.ErrorList {
	same := true
	switch kind {
	case string(corev1.SeccompProfileTypeUnconfined):
		same = text == corev1.SeccompProfileNameUnconfined
	case string(corev1.SeccompProfileTypeRuntimeDefault):
		same = slices.Contains(runtimeDefault, text)
	case string(corev1.SeccompProfileTypeLocalhost):
		var file string
		if file, same = strings.CutPrefix(text, corev1.SeccompLocalhostProfileNamePrefix); same && (local == nil || *local != file) {
			return field.ErrorList{field.Forbidden(path.Child("localhostProfile"), system+" profile in annotation and field must match")}
		}
	}
	if !same {
		return field.ErrorList{field.Forbidden(path.Child("type"), system+" type in annotation and field must match")}
	}
	return nil
}
