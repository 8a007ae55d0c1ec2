package flow

import (
	"fmt"

	flowv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// The messages are those of kubernetes pkg/apis/flowcontrol/validation.

func validateSchema(s *flowv1.FlowSchema) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if p := s.Spec.MatchingPrecedence; p < 1 || p > flowv1.FlowSchemaMaxMatchingPrecedence {
		errs = append(errs, field.Invalid(spec.Child("matchingPrecedence"), p, "must be between 1 and 10000"))
	}
	if s.Spec.PriorityLevelConfiguration.Name == "" {
		errs = append(errs, field.Required(spec.Child("priorityLevelConfiguration", "name"), "must reference a priority level"))
	}
	if m := s.Spec.DistinguisherMethod; m != nil && m.Type != flowv1.FlowDistinguisherMethodByUserType && m.Type != flowv1.FlowDistinguisherMethodByNamespaceType {
		errs = append(errs, field.NotSupported(spec.Child("distinguisherMethod", "type"), m.Type,
			[]flowv1.FlowDistinguisherMethodType{flowv1.FlowDistinguisherMethodByNamespaceType, flowv1.FlowDistinguisherMethodByUserType}))
	}
	for i, r := range s.Spec.Rules {
		at := spec.Child("rules").Index(i)
		if len(r.Subjects) == 0 {
			errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
		}
		if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
			errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
		}
	}
	for _, m := range bootstrap.MandatoryFlowSchemas {
		if m.Name == s.Name && !apiequality.Semantic.DeepEqual(m.Spec, s.Spec) {
			errs = append(errs, fixedSpec(s.Name, s.Spec))
		}
	}
	return errs
}

func validateLevel(l *flowv1.PriorityLevelConfiguration) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if (l.Name == flowv1.PriorityLevelConfigurationNameExempt) != (l.Spec.Type == flowv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(spec.Child("type"), l.Spec.Type, "type must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch l.Spec.Type {
	case flowv1.PriorityLevelEnablementExempt:
		if l.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(spec.Child("limited"), "must be nil if the type is not Limited"))
		}
	case flowv1.PriorityLevelEnablementLimited:
		if l.Spec.Exempt != nil {
			errs = append(errs, field.Forbidden(spec.Child("exempt"), "must be nil if the type is Limited"))
		}
		if l.Spec.Limited == nil {
			return append(errs, field.Required(spec.Child("limited"), "must not be empty when type is Limited"))
		}
		errs = append(errs, validateLimited(l.Spec.Limited, spec.Child("limited"))...)
	default:
		errs = append(errs, field.NotSupported(spec.Child("type"), l.Spec.Type,
			[]flowv1.PriorityLevelEnablement{flowv1.PriorityLevelEnablementExempt, flowv1.PriorityLevelEnablementLimited}))
	}
	// The shares of the level exempt may change.
	if c := bootstrap.MandatoryPriorityLevelConfigurationCatchAll; l.Name == c.Name && !apiequality.Semantic.DeepEqual(c.Spec, l.Spec) {
		errs = append(errs, fixedSpec(l.Name, l.Spec))
	}
	return errs
}

func validateLimited(l *flowv1.LimitedPriorityLevelConfiguration, at *field.Path) (errs field.ErrorList) {
	if n := l.NominalConcurrencyShares; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(at.Child("nominalConcurrencyShares"), *n, "must be a non-negative integer"))
	}
	if n := l.LendablePercent; n != nil && (*n < 0 || *n > 100) {
		errs = append(errs, field.Invalid(at.Child("lendablePercent"), *n, "must be between 0 and 100, inclusive"))
	}
	response := at.Child("limitResponse")
	q := l.LimitResponse.Queuing
	switch l.LimitResponse.Type {
	case flowv1.LimitResponseTypeReject:
		if q != nil {
			errs = append(errs, field.Forbidden(response.Child("queuing"), "must be nil if limited.limitResponse.type is not Limited"))
		}
	case flowv1.LimitResponseTypeQueue:
		if q == nil {
			return append(errs, field.Required(response.Child("queuing"), "must not be empty if limited.limitResponse.type is Limited"))
		}
		for _, c := range []struct {
			name string
			n    int32
		}{{"queues", q.Queues}, {"handSize", q.HandSize}, {"queueLengthLimit", q.QueueLengthLimit}} {
			if c.n <= 0 {
				errs = append(errs, field.Invalid(response.Child("queuing", c.name), c.n, "must be positive"))
			}
		}
		if q.HandSize > q.Queues {
			errs = append(errs, field.Invalid(response.Child("queuing", "handSize"), q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
		}
	default:
		errs = append(errs, field.NotSupported(response.Child("type"), l.LimitResponse.Type,
			[]flowv1.LimitResponseType{flowv1.LimitResponseTypeQueue, flowv1.LimitResponseTypeReject}))
	}
	return errs
}

// fixedSpec rejects another spec of a mandatory object.
func fixedSpec(name string, spec any) *field.Error {
	return field.Invalid(field.NewPath("spec"), spec, fmt.Sprintf("spec of '%s' must equal the fixed value", name))
}
