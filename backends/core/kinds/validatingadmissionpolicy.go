package kinds

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"portico/backends/core/kinds/rules"
	"portico/resource/rest"
)

// validatingAdmissionPolicies is the row of ValidatingAdmissionPolicy.
func validatingAdmissionPolicies(cfg Config) *rest.Kind {
	type policy = admissionregistrationv1.ValidatingAdmissionPolicy
	return &rest.Kind{
		Info: admissionInfo("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
		Strategy: rest.Strategy{
			LooseFinalizers: true,
			ValidateName:    apiName,
			Default: onDefault(func(p *policy) {
				rules.Default(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
				defaultMatchResources(p.Spec.MatchConstraints)
			}),
			TrackGeneration: true,
			PrepareCreate: onCreate(func(p *policy) {
				p.Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{}
			}),
			PrepareUpdate: onUpdate(func(p, old *policy) { old.Status.DeepCopyInto(&p.Status) }),
			Validate: checkThen(func(p *policy) field.ErrorList {
				return validateValidatingPolicy(p, nil, true)
			}, func(ctx context.Context, p *policy) field.ErrorList { return cfg.paramKind(ctx, p.Spec.ParamKind, nil) }),
			ValidateUpdate: checkUpdateThen(func(p, old *policy) field.ErrorList {
				// Match conditions are validated again only if they or their parameters
				// change.
				return validateValidatingPolicy(p, old, !equality.Semantic.DeepEqual(p.Spec.ParamKind, old.Spec.ParamKind) ||
					!equality.Semantic.DeepEqual(p.Spec.MatchConditions, old.Spec.MatchConditions))
			}, func(ctx context.Context, p, old *policy) field.ErrorList {
				return cfg.paramKind(ctx, p.Spec.ParamKind, old.Spec.ParamKind)
			}),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			Resets: []string{"metadata", "spec"},
			PrepareUpdate: onUpdate(func(p, old *policy) {
				old.Spec.DeepCopyInto(&p.Spec)
				metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
			}),
			ValidateUpdate: checkNew(validateValidatingPolicyStatus),
		}}},
		Columns: policyColumns("Validations", "The number of validations."),
		Cells: cells(func(p *policy) []any {
			return []any{p.Name, int64(len(p.Spec.Validations)), paramKindCell(p.Spec.ParamKind), age(p.CreationTimestamp)}
		}),
	}
}

// validatingAdmissionPolicyBindings is the row of ValidatingAdmissionPolicyBinding.
func validatingAdmissionPolicyBindings(cfg Config) *rest.Kind {
	type binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	permitted := func(ctx context.Context, b *binding) field.ErrorList {
		return cfg.paramRef(ctx, b.Spec.ParamRef, "validatingadmissionpolicies", b.Spec.PolicyName)
	}
	return &rest.Kind{
		Info: admissionInfo("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
		Strategy: rest.Strategy{
			LooseFinalizers: true,
			ValidateName:    apiName,
			Default:         onDefault(func(b *binding) { defaultMatchResources(b.Spec.MatchResources) }),
			TrackGeneration: true,
			Validate:        checkThen(validateValidatingBinding, permitted),
			ValidateUpdate: checkUpdateThen(func(b, _ *binding) field.ErrorList { return validateValidatingBinding(b) },
				func(ctx context.Context, b, _ *binding) field.ErrorList { return permitted(ctx, b) }),
		},
		Columns: bindingColumns(),
		Cells: cells(func(b *binding) []any {
			return []any{b.Name, b.Spec.PolicyName, paramRefCell(b.Spec.ParamRef), age(b.CreationTimestamp)}
		}),
	}
}

// validateValidatingPolicy validates a policy. old is nil on create.
func validateValidatingPolicy(p, old *admissionregistrationv1.ValidatingAdmissionPolicy, matchConditions bool) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	cel := newCELRules(spec.ParamKind != nil)
	if old != nil {
		cel.keep(old.Spec.MatchConditions, old.Spec.Variables)
		for _, v := range old.Spec.Validations {
			cel.stored[v.Expression], cel.stored[v.MessageExpression] = true, true
		}
		for _, a := range old.Spec.AuditAnnotations {
			cel.stored[a.ValueExpression] = true
		}
	}
	errs := validateRequiredFailurePolicy(spec.FailurePolicy, path.Child("failurePolicy"))
	errs = append(errs, validateParamKind(spec.ParamKind, path.Child("paramKind"))...)
	errs = append(errs, validateMatchConstraints(spec.MatchConstraints, path.Child("matchConstraints"))...)
	if matchConditions {
		errs = append(errs, validateMatchConditions(spec.MatchConditions, cel, path.Child("matchConditions"))...)
	}
	errs = append(errs, validateVariables(spec.Variables, cel, path.Child("variables"))...)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const why = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(path.Child("validations"), why), field.Required(path.Child("auditAnnotations"), why))
	}
	for i := range spec.Validations {
		errs = append(errs, validateValidation(&spec.Validations[i], cel, path.Child("validations").Index(i))...)
	}
	return append(errs, validateAuditAnnotations(p.Name, spec.AuditAnnotations, cel, path.Child("auditAnnotations"))...)
}

func validateValidation(v *admissionregistrationv1.Validation, cel *celRules, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(path.Child("expression"), "expression is not specified"))
	} else {
		errs = append(errs, cel.validation(v.Expression, path.Child("expression"))...)
	}
	switch {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		errs = append(errs, field.Invalid(path.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	default:
		errs = append(errs, cel.message(v.MessageExpression, path.Child("messageExpression"))...)
	}
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must be non-empty if specified"))
	case strings.ContainsAny(message, "\r\n"):
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must not contain line breaks"))
	}
	if v.Reason != nil {
		errs = append(errs, rules.Supported(*v.Reason, path.Child("reason"), metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
			metav1.StatusReasonRequestEntityTooLarge)...)
	}
	return errs
}

func validateValidatingPolicyStatus(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	path := field.NewPath("status")
	errs := metav1validation.ValidateConditions(p.Status.Conditions, path.Child("conditions"))
	if p.Status.TypeChecking == nil {
		return errs
	}
	for i, w := range p.Status.TypeChecking.ExpressionWarnings {
		at := path.Child("typeChecking", "expressionWarnings").Index(i)
		if w.Warning == "" {
			errs = append(errs, field.Required(at.Child("warning"), ""))
		}
		if ref := strings.TrimSpace(w.FieldRef); ref == "" {
			errs = append(errs, field.Required(at.Child("fieldRef"), ""))
		} else if err := jsonpath.New("").Parse("{" + ref + "}"); err != nil {
			errs = append(errs, field.Invalid(at.Child("fieldRef"), ref, fmt.Sprintf("invalid JSONPath: %v", err)))
		}
	}
	return errs
}

func validateValidatingBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	path := field.NewPath("spec")
	errs := validatePolicyName(b.Spec.PolicyName, path.Child("policyName"))
	errs = append(errs, validateParamRef(b.Spec.ParamRef, path.Child("paramRef"))...)
	errs = append(errs, validateMatchResources(b.Spec.MatchResources, path.Child("matchResources"))...)
	return append(errs, validateActions(b.Spec.ValidationActions, path.Child("validationActions"))...)
}

func validateActions(actions []admissionregistrationv1.ValidationAction, path *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for i, a := range actions {
		errs = append(errs, rules.Supported(a, path.Index(i),
			admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)...)
		if slices.Contains(actions[:i], a) {
			errs = append(errs, field.Duplicate(path.Index(i), a))
		}
	}
	if slices.Contains(actions, admissionregistrationv1.Deny) && slices.Contains(actions, admissionregistrationv1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "must not contain both Deny and Warn "+
			"(repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}
