package podspec

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// podTerm is a term of the affinity or anti-affinity to other pods.
type podTerm struct {
	*corev1.PodAffinityTerm
	path *field.Path
	// weight is that of a preference, nil for a requirement.
	weight     *int32
	weightPath *field.Path
}

// podTerms returns all terms of an affinity.
func podTerms(a *corev1.Affinity, path *field.Path) []podTerm {
	var all []podTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path) {
		for i := range required {
			all = append(all, podTerm{PodAffinityTerm: &required[i], path: path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i)})
		}
		for i := range preferred {
			at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			all = append(all, podTerm{&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"), &preferred[i].Weight, at.Child("weight")})
		}
	}
	if a != nil && a.PodAffinity != nil {
		add(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if a != nil && a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
	return all
}

func (t podTerm) selectorErrors(lax bool) field.ErrorList {
	errs := validateSelector(t.LabelSelector, lax, t.path.Child("labelSelector"))
	return append(errs, validateSelector(t.NamespaceSelector, lax, t.path.Child("namespaceSelector"))...)
}

func invalidTermSelectors(spec *corev1.PodSpec) bool {
	for _, t := range podTerms(spec.Affinity, nil) {
		if len(t.selectorErrors(false)) > 0 {
			return true
		}
	}
	return false
}

// requiredNodes returns the selector of nodes that a spec requires, or nil.
func requiredNodes(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func invalidNodeValues(spec *corev1.PodSpec) bool {
	s := requiredNodes(spec)
	return s != nil && rules.InvalidNodeValues(s.NodeSelectorTerms)
}

func validateAffinity(a *corev1.Affinity, path *field.Path, o Options) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		at := path.Child("nodeAffinity")
		if s := n.RequiredDuringSchedulingIgnoredDuringExecution; s != nil {
			errs = append(errs, rules.NodeSelector(s, o.stored(invalidNodeValues), at.Child("requiredDuringSchedulingIgnoredDuringExecution"))...)
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			term, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			errs = append(errs, validateWeight(term.Weight, at.Child("weight"))...)
			errs = append(errs, rules.NodeSelectorTerm(&term.Preference, true, at.Child("preference"))...)
		}
	}
	lax := o.stored(invalidTermSelectors)
	for _, t := range podTerms(a, path) {
		if t.weight != nil {
			errs = append(errs, validateWeight(*t.weight, t.weightPath)...)
		}
		errs = append(errs, t.selectorErrors(lax)...)
		for _, name := range t.Namespaces {
			errs = append(errs, rules.Invalid(t.path.Child("namespace"), name, validation.IsDNS1123Label(name))...)
		}
		errs = append(errs, validateLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, t.path)...)
		if t.TopologyKey == "" {
			errs = append(errs, field.Required(t.path.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, metav1validation.ValidateLabelName(t.TopologyKey, t.path.Child("topologyKey"))...)
	}
	return errs
}

func validateWeight(weight int32, path *field.Path) field.ErrorList {
	if weight < 1 || weight > 100 {
		return field.ErrorList{field.Invalid(path, weight, "must be in the range 1-100")}
	}
	return nil
}

// validateInteger requires a decimal integer of 64 bits.
func validateInteger(value string, path *field.Path) field.ErrorList {
	errs := rules.Invalid(path, value, content.IsDecimalInteger(value))
	if _, err := strconv.ParseInt(value, 10, 64); err != nil {
		errs = append(errs, field.Invalid(path, value, err.Error()))
	}
	return errs
}
