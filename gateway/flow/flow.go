// Package flow is priority and fairness: the kinds FlowSchema and PriorityLevelConfiguration
// (flowcontrol.apiserver.k8s.io) with the objects that every cluster has, and upstream's engine
// (k8s.io/apiserver/pkg/util/flowcontrol), which decides by them when a request runs.
//
// The engine has its configuration from the objects of the process itself: those that every
// cluster has until others are known, then those of an earlier process (Restore), then the
// stored ones. No request waits for configuration.
//
// Runs in: gateway.
package flow

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	flowv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
	"portico/resource/serve/filter"
)

// ensureInterval is the interval at which the objects that every cluster has are checked.
const ensureInterval = time.Minute

// Config of a Flow.
type Config struct {
	// Seats is the number of seats that requests share; 0: there is no engine, and the
	// objects limit no requests.
	Seats int
	// RequestTimeout is the longest time of a request, of which it may wait a quarter, and a
	// minute at most. Default filter.DefaultRequestTimeout.
	RequestTimeout time.Duration
	// Stats returns the Stats of a resource ("deployments.apps"), for the seats of lists; ok is
	// false where they are not known, and a list takes one seat. nil: nothing is known.
	Stats func(groupResource string) (stats Stats, ok bool)
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Stats are how many objects of a resource there are, and their size in bytes.
type Stats struct{ Objects, Bytes int64 }

// Flow serves the flow control kinds, and admits requests by their objects.
type Flow struct {
	cfg    Config
	log    *slog.Logger
	engine *engine // nil: none
}

// New returns a Flow.
func New(cfg Config) *Flow {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, filter.DefaultRequestTimeout)
	return &Flow{cfg: cfg, log: cfg.Logger}
}

// Open makes the engine and returns it; nil if there is none. find returns the resources of
// Kinds.
func (f *Flow) Open(find func(gr schema.GroupResource) *rest.Resource) (filter.FlowControl, error) {
	if f.cfg.Seats == 0 {
		return nil, nil
	}
	var err error
	if f.engine, err = newEngine(&f.cfg, find(levelResource), find(schemaResource)); err != nil {
		return nil, err
	}
	return f.engine, nil
}

var (
	levelResource  = flowv1.Resource("prioritylevelconfigurations")
	schemaResource = flowv1.Resource("flowschemas")
)

// EngineMetrics are the prefixes of the names of the engine's metrics.
func EngineMetrics() []string { return []string{"apiserver_flowcontrol_"} }

// Restore makes the engine work by the objects that an earlier process read, until Run has read
// the stored ones.
func (f *Flow) Restore(objects func(schema.GroupResource) []*resource.Object) {
	if f.engine != nil {
		f.engine.restore(objects(levelResource), objects(schemaResource))
	}
}

// Pages returns the debug pages of the engine by path.
func (f *Flow) Pages() map[string]http.Handler {
	if f.engine == nil {
		return nil
	}
	return f.engine.pages()
}

// Run maintains the objects that every cluster has, and runs the engine, until ctx ends. find
// returns the resources of Kinds.
func (f *Flow) Run(ctx context.Context, find func(gr schema.GroupResource) *rest.Resource) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if f.engine != nil {
		wg.Go(func() { f.engine.run(ctx) })
	}
	tick := time.NewTicker(ensureInterval)
	defer tick.Stop()
	for {
		logged := "" // the last error in the log
		err := loop.Retry(ctx, loop.Backoff{Max: time.Second}, func(ctx context.Context) error {
			err := ensure(ctx, find(levelResource), find(schemaResource))
			if err != nil && ctx.Err() == nil && err.Error() != logged {
				logged = err.Error()
				f.log.Warn("maintaining flow control objects failed", "err", err)
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
