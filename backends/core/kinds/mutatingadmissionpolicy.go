package kinds

import (
	"context"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource/rest"
)

// mutatingAdmissionPolicies is the row of MutatingAdmissionPolicy.
func mutatingAdmissionPolicies(cfg Config) *rest.Kind {
	type policy = admissionregistrationv1.MutatingAdmissionPolicy
	return &rest.Kind{
		Info: admissionInfo("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
		Strategy: rest.Strategy{
			LooseFinalizers: true,
			ValidateName:    apiName,
			Default: onDefault(func(p *policy) {
				rules.Default(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
				defaultMatchResources(p.Spec.MatchConstraints)
			}),
			TrackGeneration: true,
			Validate: checkThen(func(p *policy) field.ErrorList {
				return validateMutatingPolicy(p, nil, true)
			}, func(ctx context.Context, p *policy) field.ErrorList { return cfg.paramKind(ctx, p.Spec.ParamKind, nil) }),
			ValidateUpdate: checkUpdateThen(func(p, old *policy) field.ErrorList {
				return validateMutatingPolicy(p, old, !equality.Semantic.DeepEqual(p.Spec.ParamKind, old.Spec.ParamKind) ||
					!equality.Semantic.DeepEqual(p.Spec.MatchConditions, old.Spec.MatchConditions))
			}, func(ctx context.Context, p, old *policy) field.ErrorList {
				return cfg.paramKind(ctx, p.Spec.ParamKind, old.Spec.ParamKind)
			}),
		},
		Columns: policyColumns("Mutations", "The number of mutations."),
		Cells: cells(func(p *policy) []any {
			return []any{p.Name, int64(len(p.Spec.Mutations)), paramKindCell(p.Spec.ParamKind), age(p.CreationTimestamp)}
		}),
	}
}

// mutatingAdmissionPolicyBindings is the row of MutatingAdmissionPolicyBinding.
func mutatingAdmissionPolicyBindings(cfg Config) *rest.Kind {
	type binding = admissionregistrationv1.MutatingAdmissionPolicyBinding
	permitted := func(ctx context.Context, b *binding) field.ErrorList {
		return cfg.paramRef(ctx, b.Spec.ParamRef, "mutatingadmissionpolicies", b.Spec.PolicyName)
	}
	return &rest.Kind{
		Info: admissionInfo("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
		Strategy: rest.Strategy{
			LooseFinalizers: true,
			ValidateName:    apiName,
			Default:         onDefault(func(b *binding) { defaultMatchResources(b.Spec.MatchResources) }),
			TrackGeneration: true,
			Validate:        checkThen(validateMutatingBinding, permitted),
			ValidateUpdate: checkUpdateThen(func(b, _ *binding) field.ErrorList { return validateMutatingBinding(b) },
				func(ctx context.Context, b, _ *binding) field.ErrorList { return permitted(ctx, b) }),
		},
		Columns: bindingColumns(),
		Cells: cells(func(b *binding) []any {
			return []any{b.Name, b.Spec.PolicyName, paramRefCell(b.Spec.ParamRef), age(b.CreationTimestamp)}
		}),
	}
}

// validateMutatingPolicy validates a policy. old is nil on create.
func validateMutatingPolicy(p, old *admissionregistrationv1.MutatingAdmissionPolicy, matchConditions bool) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	cel := newCELRules(spec.ParamKind != nil)
	if old != nil {
		cel.keep(old.Spec.MatchConditions, old.Spec.Variables)
		for _, m := range old.Spec.Mutations {
			if m.ApplyConfiguration != nil {
				cel.stored[m.ApplyConfiguration.Expression] = true
			}
			if m.JSONPatch != nil {
				cel.stored[m.JSONPatch.Expression] = true
			}
		}
	}
	errs := validateRequiredFailurePolicy(spec.FailurePolicy, path.Child("failurePolicy"))
	errs = append(errs, validateParamKind(spec.ParamKind, path.Child("paramKind"))...)
	errs = append(errs, validateMatchConstraints(spec.MatchConstraints, path.Child("matchConstraints"))...)
	errs = append(errs, validateMutable(spec.MatchConstraints, path.Child("matchConstraints", "resourceRules", "operations"))...)
	if matchConditions {
		errs = append(errs, validateMatchConditions(spec.MatchConditions, cel, path.Child("matchConditions"))...)
	}
	errs = append(errs, validateVariables(spec.Variables, cel, path.Child("variables"))...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(path.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range spec.Mutations {
		errs = append(errs, validateMutation(&spec.Mutations[i], cel, path.Child("mutations").Index(i))...)
	}
	return append(errs, rules.Enum(spec.ReinvocationPolicy, path.Child("reinvocationPolicy"),
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
}

// validateMutable rejects rules for DELETE, which has no object to change.
func validateMutable(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for _, rule := range m.ResourceRules {
		for _, op := range rule.Operations {
			errs = append(errs, rules.Supported(op, path, admissionregistrationv1.OperationAll,
				admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update)...)
		}
	}
	return errs
}

func validateMutation(m *admissionregistrationv1.Mutation, cel *celRules, path *field.Path) field.ErrorList {
	errs := rules.Enum(m.PatchType, path.Child("patchType"),
		admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)
	// Each patch type requires a field of its own and excludes that of the other.
	type form struct {
		name, expression string
		set              bool
	}
	own, other := form{name: "applyConfiguration"}, form{name: "jsonPatch"}
	if c := m.ApplyConfiguration; c != nil {
		own.set, own.expression = true, c.Expression
	}
	if c := m.JSONPatch; c != nil {
		other.set, other.expression = true, c.Expression
	}
	switch m.PatchType {
	case admissionregistrationv1.PatchTypeApplyConfiguration:
	case admissionregistrationv1.PatchTypeJSONPatch:
		own, other = other, own
	default:
		return errs
	}
	switch {
	case !own.set:
		errs = append(errs, field.Required(path.Child(own.name), "must be specified when patchType is "+string(m.PatchType)))
	case strings.TrimSpace(own.expression) == "":
		errs = append(errs, field.Required(path.Child(own.name, "expression"), ""))
	default:
		errs = append(errs, cel.mutation(m.PatchType, own.expression, path.Child(own.name, "expression"))...)
	}
	if other.set {
		errs = append(errs, field.Invalid(path.Child(other.name), "{"+other.name+"}", "must not be specified when patchType is "+string(m.PatchType)))
	}
	return errs
}

func validateMutatingBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	path := field.NewPath("spec")
	errs := validatePolicyName(b.Spec.PolicyName, path.Child("policyName"))
	errs = append(errs, validateParamRef(b.Spec.ParamRef, path.Child("paramRef"))...)
	errs = append(errs, validateMatchResources(b.Spec.MatchResources, path.Child("matchResources"))...)
	return append(errs, validateMutable(b.Spec.MatchResources, path.Child("matchResources", "resourceRules", "operations"))...)
}
