package gateway

import (
	"context"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// followWindow is how long after a change of an APIService or Backend more are
// waited for: who made it wants to use it.
const followWindow = time.Millisecond

// followAPIServices hands every state of the stored APIServices to sync.
func (g *Gateway) followAPIServices(ctx context.Context) error {
	return followOwn(ctx, g, g.apiservices, func(list []*apireg.APIService) { g.sync.SetAPIServices(list) })
}

// followBackends hands every state of the stored Backends to sync.
func (g *Gateway) followBackends(ctx context.Context) error {
	return followOwn(ctx, g, g.backends, func(list []*backend.Backend) { g.sync.SetBackends(list) })
}

// followOwn hands every state of one of the gateway's own resources to set,
// once it is known what servers said last: that belongs to them.
func followOwn[T any](ctx context.Context, g *Gateway, r *rest.Resource, set func([]T)) error {
	// What did not change is not decoded again: with thousands registered, most
	// news is about one.
	decoded := map[*resource.Object]T{}
	return loop.Follow(ctx, r.Store, loop.FollowOptions{Logger: g.log, Window: followWindow}, func(s loop.Snapshot) {
		list := make([]T, 0, len(s.Items))
		before := decoded
		decoded = make(map[*resource.Object]T, len(s.Items))
		for _, o := range s.Items {
			v, ok := before[o]
			if !ok {
				obj, err := r.Decode(o)
				if err != nil {
					g.log.Error("an object does not decode and is left out", "resource", r.Resource, "name", o.Name, "err", err)
					continue
				}
				v = any(obj).(T)
			}
			decoded[o] = v
			list = append(list, v)
		}
		if g.lastGood != nil && !g.lastGood.Await(ctx) {
			return
		}
		set(list)
	})
}
