// Package flow serves the flow control kinds (flowcontrol.apiserver.k8s.io): flow schemas
// and priority levels, with those that every cluster has.
//
// The objects are stored, listed and watched; they limit no requests. Aggregated API
// servers follow them to become ready, and write the condition Dangling of every schema
// unless it is right, so dangling.go maintains it.
//
// Runs in: gateway.
package flow

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// ensureInterval is the interval at which mandatory objects are checked.
const ensureInterval = time.Minute

// Config of Flow.
type Config struct {
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Flow serves the flow control kinds.
type Flow struct{ log *slog.Logger }

// New returns a Flow.
func New(cfg Config) *Flow {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Flow{log: cfg.Logger}
}

// Run creates the objects that every cluster has, and mandatory ones again if they are
// missing, until ctx ends.
func (f *Flow) Run(ctx context.Context, find func(gr schema.GroupResource) *rest.Resource) error {
	levels := find(flowv1.Resource("prioritylevelconfigurations"))
	schemas := find(flowv1.Resource("flowschemas"))
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.followDangling(ctx, levels, schemas) })
	tick := time.NewTicker(ensureInterval)
	defer tick.Stop()
	all := true // the first time; later only mandatory ones
	for {
		told := "" // the reason that was logged last
		err := loop.Retry(ctx, loop.Backoff{Max: time.Second}, func(ctx context.Context) error {
			err := ensure(ctx, levels, schemas, all)
			if err != nil && ctx.Err() == nil && err.Error() != told {
				told = err.Error()
				f.log.Warn("creating flow control objects failed", "err", err)
			}
			return err
		})
		if err != nil {
			return err
		}
		all = false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func ensure(ctx context.Context, levels, schemas *rest.Resource, all bool) error {
	for _, l := range bootstrapLevels() {
		if all || mandatory(l.Name) {
			if err := create(ctx, levels, l); err != nil {
				return err
			}
		}
	}
	for _, s := range bootstrapSchemas() {
		if all || mandatory(s.Name) {
			if err := create(ctx, schemas, s); err != nil {
				return err
			}
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
