// Package flow serves the flow control kinds (flowcontrol.apiserver.k8s.io): FlowSchema
// and PriorityLevelConfiguration, with the objects that every cluster has.
//
// The objects are stored, listed and watched; they limit no requests. Aggregated API servers
// wait for them before they become ready, and correct the condition Dangling of each
// FlowSchema, so Run maintains it.
//
// Runs in: gateway.
package flow

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// ensureInterval is the interval at which mandatory objects are checked.
const ensureInterval = time.Minute

// Flow serves the flow control kinds.
type Flow struct{ log *slog.Logger }

// New returns a Flow. A nil logger is slog.Default().
func New(log *slog.Logger) *Flow {
	if log == nil {
		log = slog.Default()
	}
	return &Flow{log: log}
}

// Run creates the objects that every cluster has, recreates mandatory ones that are
// missing, and maintains the condition Dangling, until ctx ends. find returns the
// resources of Kinds.
func (f *Flow) Run(ctx context.Context, find func(gr schema.GroupResource) *rest.Resource) error {
	levels := find(flowv1.Resource("prioritylevelconfigurations"))
	schemas := find(flowv1.Resource("flowschemas"))
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.followDangling(ctx, levels, schemas) })
	tick := time.NewTicker(ensureInterval)
	defer tick.Stop()
	for suggested := true; ; suggested = false {
		logged := "" // the last error in the log
		err := loop.Retry(ctx, loop.Backoff{Max: time.Second}, func(ctx context.Context) error {
			err := ensure(ctx, levels, schemas, suggested)
			if err != nil && ctx.Err() == nil && err.Error() != logged {
				logged = err.Error()
				f.log.Warn("creating flow control objects failed", "err", err)
			}
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// ensure creates missing objects: the mandatory ones, and with suggested the other
// objects that kube-apiserver creates.
func ensure(ctx context.Context, levels, schemas *rest.Resource, suggested bool) error {
	wantLevels, wantSchemas := bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.MandatoryFlowSchemas
	if suggested {
		wantLevels = slices.Concat(wantLevels, bootstrap.SuggestedPriorityLevelConfigurations)
		wantSchemas = slices.Concat(wantSchemas, bootstrap.SuggestedFlowSchemas)
	}
	for _, l := range wantLevels {
		if err := create(ctx, levels, l.DeepCopy()); err != nil {
			return err
		}
	}
	for _, s := range wantSchemas {
		if err := create(ctx, schemas, s.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

// create stores an object unless it exists.
func create[T rest.Object](ctx context.Context, r *rest.Resource, obj T) error {
	_, err := r.Store.Get(ctx, resource.Key{Name: obj.GetName()}, resource.At{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read %s %q: %w", r.Kind.Kind, obj.GetName(), err)
	}
	if _, err := rest.CreateObject(ctx, r, obj); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s %q: %w", r.Kind.Kind, obj.GetName(), err)
	}
	return nil
}

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
		s, err := rest.DecodeAs[*flowv1.FlowSchema](r.Kind, o)
		if err != nil {
			return err
		}
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
