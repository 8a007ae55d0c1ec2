package flow

import (
	"context"
	"fmt"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/applyconfigurations"

	"portico/resource"
	"portico/resource/rest"
)

// Kinds returns the rows of both kinds.
func (f *Flow) Kinds() ([]*rest.Kind, error) {
	scheme := runtime.NewScheme()
	if err := flowv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register flow control kinds: %w", err)
	}
	row := func(res, kind string, k rest.Kind) *rest.Kind {
		k.Info = resource.Info{Group: flowv1.GroupName, Versions: []string{"v1"}, Resource: res, Kind: kind}
		k.Codec = rest.Typed(scheme, flowv1.SchemeGroupVersion.WithKind(kind))
		k.Ownership = func() (managedfields.TypeConverter, error) { return applyconfigurations.NewTypeConverter(scheme), nil }
		k.UnconditionalUpdate = true
		k.Strategy.TrackGeneration = true
		return &k
	}
	return []*rest.Kind{
		row("flowschemas", "FlowSchema", schemaKind()),
		row("prioritylevelconfigurations", "PriorityLevelConfiguration", levelKind()),
	}, nil
}

func schemaKind() rest.Kind {
	return rest.Kind{
		Strategy: rest.Strategy{
			Default: func(obj rest.Object) {
				if s := obj.(*flowv1.FlowSchema); s.Spec.MatchingPrecedence == 0 {
					s.Spec.MatchingPrecedence = 1000
				}
			},
			PrepareCreate: func(_ context.Context, obj rest.Object) { obj.(*flowv1.FlowSchema).Status = flowv1.FlowSchemaStatus{} },
			PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
				obj.(*flowv1.FlowSchema).Status = *old.(*flowv1.FlowSchema).Status.DeepCopy()
			},
			Validate: func(_ context.Context, obj rest.Object) field.ErrorList {
				return validateSchema(obj.(*flowv1.FlowSchema))
			},
			ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList {
				return validateSchema(obj.(*flowv1.FlowSchema))
			},
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
				obj.(*flowv1.FlowSchema).Spec = *old.(*flowv1.FlowSchema).Spec.DeepCopy()
			},
		}}},
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the flow schema."},
			{Name: "PriorityLevel", Type: "string", Description: "The priority level its requests go to."},
			{Name: "MatchingPrecedence", Type: "integer", Description: "Which of several matching schemas is used: the lowest."},
			{Name: "DistinguisherMethod", Type: "string", Description: "What tells the flows of the schema apart."},
			{Name: "Age", Type: "string", Description: "How long ago the object was created."},
			{Name: "MissingPL", Type: "string", Description: "Whether the priority level does not exist."},
		},
		Cells: func(obj runtime.Object) ([]any, error) {
			s, ok := obj.(*flowv1.FlowSchema)
			if !ok {
				return nil, fmt.Errorf("print FlowSchema: got %T", obj)
			}
			method, missing := "<none>", "?"
			if s.Spec.DistinguisherMethod != nil {
				method = string(s.Spec.DistinguisherMethod.Type)
			}
			for _, c := range s.Status.Conditions {
				if c.Type == flowv1.FlowSchemaConditionDangling {
					missing = string(c.Status)
				}
			}
			return []any{s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method, age(&s.ObjectMeta), missing}, nil
		},
	}
}

func levelKind() rest.Kind {
	return rest.Kind{
		Strategy: rest.Strategy{
			Default: func(obj rest.Object) { defaultLevel(&obj.(*flowv1.PriorityLevelConfiguration).Spec) },
			PrepareCreate: func(_ context.Context, obj rest.Object) {
				obj.(*flowv1.PriorityLevelConfiguration).Status = flowv1.PriorityLevelConfigurationStatus{}
			},
			PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
				obj.(*flowv1.PriorityLevelConfiguration).Status = *old.(*flowv1.PriorityLevelConfiguration).Status.DeepCopy()
			},
			Validate: func(_ context.Context, obj rest.Object) field.ErrorList {
				return validateLevel(obj.(*flowv1.PriorityLevelConfiguration))
			},
			ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList {
				return validateLevel(obj.(*flowv1.PriorityLevelConfiguration))
			},
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
				obj.(*flowv1.PriorityLevelConfiguration).Spec = *old.(*flowv1.PriorityLevelConfiguration).Spec.DeepCopy()
			},
		}}},
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the priority level."},
			{Name: "Type", Type: "string", Description: "Limited or Exempt."},
			{Name: "NominalConcurrencyShares", Type: "string", Description: "The level's share of the server's concurrency."},
			{Name: "Queues", Type: "string", Description: "The number of queues."},
			{Name: "HandSize", Type: "string", Description: "How many queues a flow is dealt."},
			{Name: "QueueLengthLimit", Type: "string", Description: "How many requests may wait in a queue."},
			{Name: "Age", Type: "string", Description: "How long ago the object was created."},
		},
		Cells: levelCells,
	}
}

func levelCells(obj runtime.Object) ([]any, error) {
	l, ok := obj.(*flowv1.PriorityLevelConfiguration)
	if !ok {
		return nil, fmt.Errorf("print PriorityLevelConfiguration: got %T", obj)
	}
	var shares, queues, hand, length any = "<none>", "<none>", "<none>", "<none>"
	if limited := l.Spec.Limited; limited != nil {
		if limited.NominalConcurrencyShares != nil {
			shares = fmt.Sprint(*limited.NominalConcurrencyShares)
		}
		if q := limited.LimitResponse.Queuing; q != nil {
			queues, hand, length = fmt.Sprint(q.Queues), fmt.Sprint(q.HandSize), fmt.Sprint(q.QueueLengthLimit)
		}
	}
	return []any{l.Name, string(l.Spec.Type), shares, queues, hand, length, age(&l.ObjectMeta)}, nil
}

func age(m *metav1.ObjectMeta) string {
	if m.CreationTimestamp.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(m.CreationTimestamp.Time))
}

func defaultLevel(s *flowv1.PriorityLevelConfigurationSpec) {
	zero, shares := int32(0), int32(30)
	if e := s.Exempt; e != nil {
		if e.NominalConcurrencyShares == nil {
			e.NominalConcurrencyShares = &zero
		}
		if e.LendablePercent == nil {
			e.LendablePercent = &zero
		}
	}
	l := s.Limited
	if l == nil {
		return
	}
	if l.NominalConcurrencyShares == nil {
		l.NominalConcurrencyShares = &shares
	}
	if l.LendablePercent == nil {
		l.LendablePercent = &zero
	}
	if q := l.LimitResponse.Queuing; q != nil {
		if q.Queues == 0 {
			q.Queues = 64
		}
		if q.HandSize == 0 {
			q.HandSize = 8
		}
		if q.QueueLengthLimit == 0 {
			q.QueueLengthLimit = 50
		}
	}
}

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
	return append(errs, locked(s.Name, func() (want, have any) {
		for _, m := range bootstrapSchemas() {
			if m.Name == s.Name {
				return m.Spec, s.Spec
			}
		}
		return nil, nil
	})...)
}

func validateLevel(l *flowv1.PriorityLevelConfiguration) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if (l.Name == "exempt") != (l.Spec.Type == flowv1.PriorityLevelEnablementExempt) {
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
	return append(errs, locked(l.Name, func() (want, have any) {
		for _, m := range bootstrapLevels() {
			if m.Name == l.Name && m.Name == "catch-all" {
				return m.Spec, l.Spec
			}
		}
		return nil, nil
	})...)
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

// locked rejects another spec for a mandatory object.
func locked(name string, specs func() (want, have any)) field.ErrorList {
	if !mandatory(name) {
		return nil
	}
	if want, have := specs(); want != nil && !apiequality.Semantic.DeepEqual(want, have) {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), have, fmt.Sprintf("spec of '%s' must equal the fixed value", name))}
	}
	return nil
}
