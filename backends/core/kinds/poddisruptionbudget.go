package kinds

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// emptyMatchKey is the key of selectors by which version v1beta1, where an empty selector
// selects nothing, expresses those of v1.
const emptyMatchKey = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// podDisruptionBudgets is the row of policy/v1 PodDisruptionBudget.
func podDisruptionBudgets(scheme *runtime.Scheme) *rest.Kind {
	return &rest.Kind{
		Codec: rest.TypedConverted(scheme, policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), convertBudget(scheme)),
		Info: resource.Info{
			Group: policyv1.GroupName, Versions: []string{"v1"}, Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget",
			ShortNames: []string{"pdb"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			ValidateName:    func(string, bool) []string { return nil }, // every path segment is a name
			LooseFinalizers: true,
			TrackGeneration: true,
			PrepareCreate: onCreate(func(b *policyv1.PodDisruptionBudget) {
				b.Status = policyv1.PodDisruptionBudgetStatus{}
				dropEmptyMatch(b.Spec.Selector)
			}),
			PrepareUpdate: onUpdate(func(b, old *policyv1.PodDisruptionBudget) {
				old.Status.DeepCopyInto(&b.Status)
				if !equality.Semantic.DeepEqual(b.Spec.Selector, old.Spec.Selector) {
					dropEmptyMatch(b.Spec.Selector)
				}
			}),
			Validate: check(func(b *policyv1.PodDisruptionBudget) field.ErrorList { return validateBudget(&b.Spec, false) }),
			ValidateUpdate: checkUpdate(func(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
				// A selector that is invalid already may keep values that no label can have.
				lax := len(metav1validation.ValidateLabelSelector(old.Spec.Selector, metav1validation.LabelSelectorValidationOptions{}, nil)) > 0
				return validateBudget(&b.Spec, lax)
			}),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate:  onUpdate(func(b, old *policyv1.PodDisruptionBudget) { old.Spec.DeepCopyInto(&b.Spec) }),
			ValidateUpdate: checkNew(validateBudgetStatus),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Min Available", "string", "The pods that have to be available."),
			column("Max Unavailable", "string", "The pods that may be unavailable."),
			column("Allowed Disruptions", "integer", "The number of pods that may be disrupted now."),
			ageColumn(),
		},
		Cells: cells(func(b *policyv1.PodDisruptionBudget) []any {
			text := func(v *intstr.IntOrString) string {
				if v == nil {
					return "N/A"
				}
				return v.String()
			}
			return []any{b.Name, text(b.Spec.MinAvailable), text(b.Spec.MaxUnavailable), int64(b.Status.DisruptionsAllowed), age(b.CreationTimestamp)}
		}),
	}
}

// convertBudget returns the ConvertFunc of PodDisruptionBudgets. An empty selector selects nothing in
// v1beta1 and everything in v1, so each is replaced by one that selects the same pods.
func convertBudget(scheme *runtime.Scheme) rest.ConvertFunc {
	convert := rest.ConvertByFields(scheme)
	return func(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
		out, err := convert(in, to)
		if err != nil {
			return nil, err
		}
		switch b := out.(type) {
		case *policyv1.PodDisruptionBudget:
			if _, ok := in.(*policyv1beta1.PodDisruptionBudget); ok {
				b.Spec.Selector = selectorFromBeta(b.Spec.Selector)
			}
		case *policyv1beta1.PodDisruptionBudget:
			if _, ok := in.(*policyv1.PodDisruptionBudget); ok {
				b.Spec.Selector = selectorToBeta(b.Spec.Selector)
			}
		}
		return out, nil
	}
}

// selectorFromBeta returns the selector of v1 for a selector of v1beta1, which it may change.
func selectorFromBeta(s *metav1.LabelSelector) *metav1.LabelSelector {
	switch {
	case equality.Semantic.DeepEqual(s, &metav1.LabelSelector{}):
		return emptyMatch(metav1.LabelSelectorOpExists)
	case equality.Semantic.DeepEqual(s, emptyMatch(metav1.LabelSelectorOpDoesNotExist)):
		return &metav1.LabelSelector{}
	}
	dropEmptyMatch(s)
	return s
}

// selectorToBeta returns the selector of v1beta1 for a selector of v1.
func selectorToBeta(s *metav1.LabelSelector) *metav1.LabelSelector {
	switch {
	case equality.Semantic.DeepEqual(s, emptyMatch(metav1.LabelSelectorOpExists)):
		return &metav1.LabelSelector{}
	case equality.Semantic.DeepEqual(s, &metav1.LabelSelector{}):
		return emptyMatch(metav1.LabelSelectorOpDoesNotExist)
	}
	return s
}

// emptyMatch returns the selector of emptyMatchKey with an operator.
func emptyMatch(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: emptyMatchKey, Operator: operator}}}
}

// dropEmptyMatch removes the key from a selector that has others beside it.
func dropEmptyMatch(s *metav1.LabelSelector) {
	if s == nil || equality.Semantic.DeepEqual(s, emptyMatch(metav1.LabelSelectorOpExists)) {
		return
	}
	s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == emptyMatchKey })
}

// validateBudget validates a spec. lax permits values that no label can have.
func validateBudget(spec *policyv1.PodDisruptionBudgetSpec, lax bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, *spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	for name, value := range map[string]*intstr.IntOrString{"minAvailable": spec.MinAvailable, "maxUnavailable": spec.MaxUnavailable} {
		if value != nil {
			errs = append(errs, rules.IntOrPercent(*value, path.Child(name))...)
			errs = append(errs, rules.AtMost100Percent(*value, path.Child(name))...)
		}
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(spec.Selector,
		metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: lax}, path.Child("selector"))...)
	if p := spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, rules.Supported(*p, path.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func validateBudgetStatus(b *policyv1.PodDisruptionBudget) field.ErrorList {
	path := field.NewPath("status")
	errs := metav1validation.ValidateConditions(b.Status.Conditions, path.Child("conditions"))
	for name, n := range map[string]int32{
		"disruptionsAllowed": b.Status.DisruptionsAllowed, "currentHealthy": b.Status.CurrentHealthy,
		"desiredHealthy": b.Status.DesiredHealthy, "expectedPods": b.Status.ExpectedPods,
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(n), path.Child(name))...)
	}
	return errs
}
