package flow

import (
	"context"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	flowapply "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	flowclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"

	"portico/resource"
	"portico/resource/rest"
)

// statusTimeout bounds the write of a condition, which the engine makes between two readings of
// its configuration.
const statusTimeout = 2 * time.Second

// statusClient is a client with the one method that the engine calls: it writes the condition
// Dangling of flow schemas. The others are nil.
type statusClient struct {
	flowclient.FlowcontrolV1Interface
	schemas *rest.Resource
}

// FlowSchemas implements flowclient.FlowcontrolV1Interface.
func (c statusClient) FlowSchemas() flowclient.FlowSchemaInterface {
	return schemaClient{schemas: c.schemas}
}

type schemaClient struct {
	flowclient.FlowSchemaInterface
	schemas *rest.Resource
}

// ApplyStatus implements flowclient.FlowSchemaInterface.
func (c schemaClient) ApplyStatus(ctx context.Context, want *flowapply.FlowSchemaApplyConfiguration, _ metav1.ApplyOptions) (*flowv1.FlowSchema, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return rest.Modify(ctx, c.schemas, resource.Key{Name: *want.GetName()}, func(s *flowv1.FlowSchema) error {
		for _, condition := range want.Status.Conditions {
			setCondition(s, flowv1.FlowSchemaCondition{
				Type: *condition.Type, Status: *condition.Status, Reason: *condition.Reason, Message: *condition.Message,
				LastTransitionTime: metav1.NewTime(condition.LastTransitionTime.Truncate(time.Second)),
			})
		}
		return nil
	})
}

// setCondition adds or replaces a condition. The time of one with the same status remains.
func setCondition(s *flowv1.FlowSchema, want flowv1.FlowSchemaCondition) {
	for i, have := range s.Status.Conditions {
		if have.Type != want.Type {
			continue
		}
		if have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		s.Status.Conditions[i] = want
		return
	}
	s.Status.Conditions = append(s.Status.Conditions, want)
}
