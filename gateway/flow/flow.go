// Package flow serves the flow control kinds (flowcontrol.apiserver.k8s.io): FlowSchema
// and PriorityLevelConfiguration, with the objects that every cluster has.
//
// The objects are stored, listed and watched; they limit no requests. Aggregated API servers
// wait for them before they become ready, and correct the condition Dangling of each
// FlowSchema, so dangling.go maintains it.
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
