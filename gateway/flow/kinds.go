package flow

import (
	"context"
	"fmt"

	flowv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
		k.Strategy.ValidateUpdate = func(ctx context.Context, obj, _ rest.Object) field.ErrorList { return k.Strategy.Validate(ctx, obj) }
		return &k
	}
	return []*rest.Kind{
		row("flowschemas", "FlowSchema", schemaKind()),
		row("prioritylevelconfigurations", "PriorityLevelConfiguration", levelKind()),
	}, nil
}

// statusOf returns the subresource status. Its updates keep metadata, and the spec by keepSpec.
func statusOf(keepSpec func(obj, old rest.Object)) []rest.Subresource {
	return []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
		Resets: []string{"metadata", "spec"},
		PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
			metav1.ResetObjectMetaForStatus(obj, old)
			keepSpec(obj, old)
		},
	}}}
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
		},
		Subresources: statusOf(func(obj, old rest.Object) {
			obj.(*flowv1.FlowSchema).Spec = *old.(*flowv1.FlowSchema).Spec.DeepCopy()
		}),
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the flow schema."},
			{Name: "PriorityLevel", Type: "string", Description: "Priority level of the requests that match."},
			{Name: "MatchingPrecedence", Type: "integer", Description: "Precedence among matching schemas; the lowest value wins."},
			{Name: "DistinguisherMethod", Type: "string", Description: "How requests of the schema are divided into flows."},
			{Name: "Age", Type: "string", Description: "Time since the object was created."},
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
			return []any{s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method, table.ConvertToHumanReadableDateType(s.CreationTimestamp), missing}, nil
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
		},
		Subresources: statusOf(func(obj, old rest.Object) {
			obj.(*flowv1.PriorityLevelConfiguration).Spec = *old.(*flowv1.PriorityLevelConfiguration).Spec.DeepCopy()
		}),
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the priority level."},
			{Name: "Type", Type: "string", Description: "Limited or Exempt."},
			{Name: "NominalConcurrencyShares", Type: "string", Description: "Share of the server's concurrency."},
			{Name: "Queues", Type: "string", Description: "Number of queues."},
			{Name: "HandSize", Type: "string", Description: "Number of queues that a flow may use."},
			{Name: "QueueLengthLimit", Type: "string", Description: "Largest number of requests in a queue."},
			{Name: "Age", Type: "string", Description: "Time since the object was created."},
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
	return []any{l.Name, string(l.Spec.Type), shares, queues, hand, length, table.ConvertToHumanReadableDateType(l.CreationTimestamp)}, nil
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
