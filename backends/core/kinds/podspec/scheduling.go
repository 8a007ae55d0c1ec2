package podspec

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// validateScheduling returns the errors of the fields that the scheduler reads, and of the
// names of other objects.
func validateScheduling(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{
		{"nodeName", spec.NodeName}, {"serviceAccountName", spec.ServiceAccountName}, {"priorityClassName", spec.PriorityClassName},
	} {
		if f.value != "" {
			errs = append(errs, rules.Invalid(path.Child(f.name), f.value, apivalidation.NameIsDNSSubdomain(f.value, false))...)
		}
	}
	if name := spec.RuntimeClassName; name != nil {
		errs = append(errs, rules.Invalid(path.Child("runtimeClassName"), *name, apivalidation.NameIsDNSSubdomain(*name, false))...)
	}
	if s := spec.ActiveDeadlineSeconds; s != nil && (*s < 1 || *s > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *s, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if p := spec.PreemptionPolicy; p != nil {
		errs = append(errs, rules.Enum(*p, path.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	errs = append(errs, validateAffinity(spec.Affinity, path.Child("affinity"), o)...)
	errs = append(errs, ValidateTolerations(spec.Tolerations, path.Child("tolerations"), o.stored(comparesTaints))...)
	errs = append(errs, validateSpread(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"), o)...)
	for i, g := range spec.ReadinessGates {
		errs = append(errs, rules.QualifiedName(string(g.ConditionType), path.Child("readinessGates").Index(i).Child("conditionType"))...)
	}
	for i, g := range spec.SchedulingGates {
		at := path.Child("schedulingGates").Index(i)
		errs = append(errs, rules.QualifiedName(g.Name, at)...)
		if slices.Contains(spec.SchedulingGates[:i], g) {
			errs = append(errs, field.Duplicate(at, g.Name))
		}
	}
	return append(errs, validateGroup(spec, path, o)...)
}

// validateGroup returns the errors of the scheduling group and of the eviction responders.
func validateGroup(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	var errs field.ErrorList
	if g := spec.SchedulingGroup; g != nil {
		at := path.Child("schedulingGroup", "podGroupName")
		if g.PodGroupName == nil {
			errs = append(errs, field.Invalid(at, g.PodGroupName, "must specify one of: `podGroupName`"))
		} else {
			errs = append(errs, rules.Invalid(at, *g.PodGroupName, apivalidation.NameIsDNSSubdomain(*g.PodGroupName, false))...)
		}
		if len(spec.EvictionResponders) > 0 {
			errs = append(errs, field.Forbidden(path.Child("schedulingGroup"), "may not be set when evictionResponders is set"))
		}
	}
	path = path.Child("evictionResponders")
	var old []corev1.EvictionResponder
	if o.Old != nil {
		old = o.Old.EvictionResponders
	}
	return append(errs, validateResponders(spec.EvictionResponders, old, path)...)
}

// The limits of eviction responders; the lowest priorities are those of the project.
const maxResponders, reservedPriorities, maxResponderPriority = 10, 1000, 100_000

func validateResponders(all, old []corev1.EvictionResponder, path *field.Path) field.ErrorList {
	switch {
	case equality.Semantic.DeepEqual(all, old):
		return nil
	case len(all) > maxResponders:
		return field.ErrorList{field.TooMany(path, len(all), maxResponders)}
	}
	var errs field.ErrorList
	named := func(name string) func(corev1.EvictionResponder) bool {
		return func(r corev1.EvictionResponder) bool { return r.Name == name }
	}
	for i, r := range all {
		at := path.Index(i)
		if slices.ContainsFunc(all[:i], named(r.Name)) {
			errs = append(errs, field.Duplicate(at, r))
		}
		if was := slices.IndexFunc(old, named(r.Name)); was >= 0 && equality.Semantic.DeepEqual(r, old[was]) {
			continue
		}
		if r.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, validate.PrefixedLabelKey(context.Background(), operation.Operation{}, at.Child("name"), &r.Name, nil)...)
		}
		switch p := r.Priority; {
		case p == nil:
			errs = append(errs, field.Required(at.Child("priority"), ""))
		case *p < 0:
			errs = append(errs, field.Invalid(at.Child("priority"), *p, "must be greater than or equal to 0"))
		case *p < reservedPriorities:
			errs = append(errs, field.Invalid(at.Child("priority"), *p, "priorities 0-999 are reserved for responders with *.k8s.io suffix"))
		case *p > maxResponderPriority:
			errs = append(errs, field.Invalid(at.Child("priority"), *p, fmt.Sprintf("must be less than or equal to %d", maxResponderPriority)))
		}
	}
	return errs
}

// comparesTaints reports whether a toleration compares numbers, which new specs may not.
func comparesTaints(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
	})
}

// ValidateTolerations returns the errors of tolerations. compare permits the operators Lt and
// Gt.
func ValidateTolerations(tolerations []corev1.Toleration, path *field.Path, compare bool) field.ErrorList {
	var errs field.ErrorList
	for i, t := range tolerations {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		errs = append(errs, validateTolerationValue(&t, at, compare)...)
		if t.Effect != "" {
			errs = append(errs, rules.Supported(t.Effect, at.Child("effect"), rules.TaintEffects...)...)
		}
	}
	return errs
}

func validateTolerationValue(t *corev1.Toleration, path *field.Path, compare bool) field.ErrorList {
	operator := path.Child("operator")
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if messages := validation.IsValidLabelValue(t.Value); len(messages) > 0 {
			return field.ErrorList{field.Invalid(operator, t.Value, strings.Join(messages, ";"))}
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			return field.ErrorList{field.Invalid(operator, t.Value, "value must be empty when `operator` is 'Exists'")}
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		if compare {
			return validateInteger(t.Value, path.Child("value"))
		}
		supported := []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}
		return field.ErrorList{field.NotSupported(operator, t.Operator, supported)}
	default:
		return rules.Supported(t.Operator, operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
	return nil
}

// validateSpread returns the errors of topology spread constraints.
func validateSpread(all []corev1.TopologySpreadConstraint, path *field.Path, o Options) field.ErrorList {
	laxSelector, laxKeys := false, false
	if o.Old != nil {
		for _, c := range o.Old.TopologySpreadConstraints {
			laxSelector = laxSelector || len(validateSelector(c.LabelSelector, false, nil)) > 0
			laxKeys = laxKeys || len(validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, nil)) > 0
		}
	}
	var errs field.ErrorList
	for i, c := range all {
		at := path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, rules.Supported(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		if slices.ContainsFunc(all[i+1:], func(d corev1.TopologySpreadConstraint) bool {
			return c.TopologyKey == d.TopologyKey && c.WhenUnsatisfiable == d.WhenUnsatisfiable
		}) {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
		}
		if n := c.MinDomains; n != nil {
			if *n <= 0 {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *n, "must be greater than zero"))
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
			}
		}
		if p := c.NodeAffinityPolicy; p != nil {
			errs = append(errs, rules.Supported(*p, at.Child("nodeAffinityPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		}
		if p := c.NodeTaintsPolicy; p != nil {
			errs = append(errs, rules.Supported(*p, at.Child("nodeTaintsPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		}
		if laxKeys {
			errs = append(errs, validateOldLabelKeys(c.MatchLabelKeys, c.LabelSelector, at.Child("matchLabelKeys"))...)
		} else {
			errs = append(errs, validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)...)
		}
		if !laxSelector {
			errs = append(errs, validateSelector(c.LabelSelector, false, at.Child("labelSelector"))...)
		}
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, lax bool, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: lax}, path)
}

// validateLabelKeys returns the errors of the keys of labels that a selector is extended by.
func validateLabelKeys(match, mismatch []string, s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		at := path.Child(list.name)
		if len(list.keys) > 0 && s == nil {
			errs = append(errs, field.Forbidden(at, "must not be specified when labelSelector is not set"))
			continue
		}
		for i, key := range list.keys {
			errs = append(errs, metav1validation.ValidateLabelName(key, at.Index(i))...)
		}
	}
	if s != nil {
		// The selector has a requirement for each key of match already.
		seen := map[string]bool{}
		for key := range s.MatchLabels {
			seen[key] = true
		}
		for _, e := range s.MatchExpressions {
			if i := lastIndex(match, e.Key); i >= 0 && seen[e.Key] {
				errs = append(errs, field.Invalid(path.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
			}
			seen[e.Key] = true
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			errs = append(errs, field.Invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}

func lastIndex(all []string, s string) int {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] == s {
			return i
		}
	}
	return -1
}

// validateOldLabelKeys is validateLabelKeys for specs of releases that did not extend the
// selector.
func validateOldLabelKeys(keys []string, s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if len(keys) == 0 {
		return nil
	}
	var errs field.ErrorList
	if s == nil {
		s = &metav1.LabelSelector{}
		errs = append(errs, field.Forbidden(path, "must not be specified when labelSelector is not set"))
	}
	for i, key := range keys {
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
		_, used := s.MatchLabels[key]
		if used || slices.ContainsFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == key }) {
			errs = append(errs, field.Invalid(path.Index(i), key, "exists in both matchLabelKeys and labelSelector"))
		}
	}
	return errs
}
