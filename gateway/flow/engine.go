package flow

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/informer"
)

// maxWait bounds the time that a request waits for seats, as in kube-apiserver.
const maxWait = time.Minute

// engine is upstream's engine with what it works from. Safe for concurrent use.
type engine struct {
	log             *slog.Logger
	levels, schemas *informer.Informer
	control         flowcontrol.Interface
	estimate        request.WorkEstimatorFunc
	dropped         flowcontrol.DroppedRequestsTracker
	wait            time.Duration // of a request without a deadline
	debug           *mux.PathRecorderMux
}

func newEngine(cfg *Config, levels, schemas *rest.Resource) (*engine, error) {
	metrics.Register()
	e := &engine{
		log: cfg.Logger, dropped: flowcontrol.NewDroppedRequestsTracker(), wait: min(cfg.RequestTimeout/4, maxWait), debug: mux.NewPathRecorderMux("flow"),
		levels:  informer.New(informer.Config{Store: levels.Store, Codec: levels.Codec, Logger: cfg.Logger}),
		schemas: informer.New(informer.Config{Store: schemas.Store, Codec: schemas.Codec, Logger: cfg.Logger}),
	}
	factory := informers.NewSharedInformerFactory(nil, 0)
	factory.InformerFor(&flowv1.PriorityLevelConfiguration{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return e.levels })
	factory.InformerFor(&flowv1.FlowSchema{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return e.schemas })
	e.control = flowcontrol.New(factory, statusClient{schemas: schemas}, cfg.Seats)
	e.control.Install(e.debug)
	e.estimate = estimator(e, cfg.Stats)
	return e, e.seed(levels, schemas)
}

// estimator estimates the seats of requests. stats is Config.Stats.
func estimator(e *engine, stats func(string) (Stats, bool)) request.WorkEstimatorFunc {
	of := func(groupResource string) (storage.Stats, error) {
		if stats != nil {
			if s, ok := stats(groupResource); ok {
				return storage.Stats{ObjectCount: s.Objects, EstimatedAverageObjectSizeBytes: s.Bytes / max(1, s.Objects)}, nil
			}
		}
		return storage.Stats{}, request.ObjectCountNotFoundErr
	}
	return request.NewWorkEstimator(of, e.control.GetInterestedWatchCount, request.DefaultWorkEstimatorConfig(), e.control.GetMaxSeats)
}

// seed gives the engine the objects that every cluster has.
func (e *engine) seed(levels, schemas *rest.Resource) error {
	var l, s []*resource.Object
	for _, level := range bootstrapLevels() {
		o, err := levels.Codec.EncodeStored(level)
		if err != nil {
			return fmt.Errorf("encode priority level %q: %w", level.Name, err)
		}
		l = append(l, o)
	}
	for _, schema := range bootstrapSchemas() {
		// The engine writes no condition that is there.
		setCondition(schema, flowv1.FlowSchemaCondition{
			Type: flowv1.FlowSchemaConditionDangling, Status: flowv1.ConditionFalse, Reason: "Found", LastTransitionTime: metav1.Now(),
			Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", schema.Spec.PriorityLevelConfiguration.Name),
		})
		o, err := schemas.Codec.EncodeStored(schema)
		if err != nil {
			return fmt.Errorf("encode flow schema %q: %w", schema.Name, err)
		}
		s = append(s, o)
	}
	e.restore(l, s)
	return nil
}

// restore gives the engine objects until it has read the stored ones. Without objects of one
// kind it does nothing.
func (e *engine) restore(levels, schemas []*resource.Object) {
	if len(levels) == 0 || len(schemas) == 0 {
		return
	}
	e.levels.Restore(levels)
	e.schemas.Restore(schemas)
}

// run follows the objects until ctx ends.
func (e *engine) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { e.levels.Follow(ctx) })
	wg.Go(func() { e.schemas.Follow(ctx) })
	wg.Go(func() {
		if err := e.control.Run(ctx.Done()); err != nil && ctx.Err() == nil {
			e.log.Error("priority and fairness ended", "err", err)
		}
	})
	wg.Wait()
}

// pages are the debug pages of the engine, at the paths that kube-apiserver has them.
func (e *engine) pages() map[string]http.Handler {
	pages := map[string]http.Handler{}
	for _, name := range []string{"dump_priority_levels", "dump_queues", "dump_requests"} {
		pages["/debug/api_priority_and_fairness/"+name] = e.debug
	}
	return pages
}

// requestInfo is the Action in the form of upstream's engine.
func requestInfo(a *resource.Action) *apirequest.RequestInfo {
	return &apirequest.RequestInfo{
		IsResourceRequest: a.IsResource, Path: a.Path, Verb: a.Verb, APIGroup: a.Group, APIVersion: a.Version, Namespace: a.Namespace,
		Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, FieldSelector: a.FieldSelector, LabelSelector: a.LabelSelector,
	}
}
