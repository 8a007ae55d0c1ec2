package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MergeLabelKeys extends the selectors of a new pod by the labels of the pod that they name.
func MergeLabelKeys(spec *corev1.PodSpec, labels map[string]string) {
	merge := func(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, ok := labels[key]; ok && s != nil {
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	for _, t := range podTerms(spec.Affinity, nil) {
		merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
		merge(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	for _, c := range spec.TopologySpreadConstraints {
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// AppArmorFields gives the containers of a new pod the profiles that annotations name, where
// they have none.
func AppArmorFields(spec *corev1.PodSpec, annotations map[string]string) {
	if isOS(spec, corev1.Windows) {
		return
	}
	var pod *corev1.AppArmorProfile
	if spec.SecurityContext != nil {
		pod = spec.SecurityContext.AppArmorProfile
	}
	for c := range Containers(spec) {
		if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		p := &corev1.AppArmorProfile{}
		switch text := annotations[appArmorAnnotation+c.Name]; {
		case text == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
			p.Type = corev1.AppArmorProfileTypeUnconfined
		case text == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
			p.Type = corev1.AppArmorProfileTypeRuntimeDefault
		default:
			file, ok := strings.CutPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
			if !ok {
				continue
			}
			p.Type, p.LocalhostProfile = corev1.AppArmorProfileTypeLocalhost, &file
		}
		if len(validateAppArmor(p, nil)) > 0 || equality.Semantic.DeepEqual(p, pod) {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = p
	}
}
