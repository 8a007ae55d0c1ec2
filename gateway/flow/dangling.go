package flow

import (
	"context"
	"fmt"
	"sync"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// followDangling maintains the condition Dangling of every flow schema: whether its
// priority level is missing. It returns when ctx ends.
func (f *Flow) followDangling(ctx context.Context, levels, schemas *rest.Resource) {
	var mu sync.Mutex
	var haveLevels, haveSchemas *loop.Snapshot
	var changed loop.Signal
	follow := func(r *rest.Resource, set func(*loop.Snapshot)) func() {
		return func() {
			// Follow returns only the error of ctx.
			_ = loop.Follow(ctx, r.Store, loop.FollowOptions{Logger: f.log}, func(s loop.Snapshot) {
				mu.Lock()
				set(&s)
				mu.Unlock()
				changed.Set()
			})
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(follow(levels, func(s *loop.Snapshot) { haveLevels = s }))
	wg.Go(follow(schemas, func(s *loop.Snapshot) { haveSchemas = s }))
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed.C():
		}
		mu.Lock()
		l, s := haveLevels, haveSchemas
		mu.Unlock()
		if l == nil || s == nil {
			continue
		}
		if loop.Retry(ctx, loop.Backoff{}, func(ctx context.Context) error {
			err := writeDangling(ctx, schemas, *l, *s)
			if err != nil && ctx.Err() == nil {
				f.log.Warn("writing conditions of flow schemas failed", "err", err)
			}
			return err
		}) != nil {
			return
		}
	}
}

func writeDangling(ctx context.Context, r *rest.Resource, levels, schemas loop.Snapshot) error {
	for _, o := range schemas.Items {
		obj, err := r.Decode(o)
		if err != nil {
			return err
		}
		s := obj.(*flowv1.FlowSchema)
		want := dangling(s, levels.Get(resource.Key{Name: s.Spec.PriorityLevelConfiguration.Name}) != nil)
		if !setCondition(s, want) {
			continue
		}
		_, err = rest.Modify(ctx, r, o.Key(), func(s *flowv1.FlowSchema) error {
			setCondition(s, want)
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write condition of FlowSchema %q: %w", s.Name, err)
		}
	}
	return nil
}

// dangling returns the condition, with upstream's texts: aggregated servers compare them
// (k8s.io/apiserver pkg/util/flowcontrol).
func dangling(s *flowv1.FlowSchema, exists bool) flowv1.FlowSchemaCondition {
	name := s.Spec.PriorityLevelConfiguration.Name
	c := flowv1.FlowSchemaCondition{
		Type: flowv1.FlowSchemaConditionDangling, Status: flowv1.ConditionFalse, Reason: "Found",
		Message:            fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", name),
		LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
	if !exists {
		c.Status, c.Reason = flowv1.ConditionTrue, "NotFound"
		c.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", name)
	}
	return c
}

// setCondition reports whether it changed the condition.
func setCondition(s *flowv1.FlowSchema, want flowv1.FlowSchemaCondition) bool {
	for i, have := range s.Status.Conditions {
		if have.Type != want.Type {
			continue
		}
		if have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
			return false
		}
		if have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		s.Status.Conditions[i] = want
		return true
	}
	s.Status.Conditions = append(s.Status.Conditions, want)
	return true
}
