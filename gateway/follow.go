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

// followWindow is how long changes of an APIService or Backend are collected. It is short,
// because the client that made the change waits for its effect.
const followWindow = time.Millisecond

// followAPIServices passes every state of the stored APIServices to routing.
func (g *Gateway) followAPIServices(ctx context.Context) error {
	return followOwn(ctx, g, g.apiservices, func(list []*apireg.APIService) { g.sync.SetAPIServices(list) })
}

// followBackends passes every state of the stored Backends to routing.
func (g *Gateway) followBackends(ctx context.Context) error {
	return followOwn(ctx, g, g.backends, func(list []*backend.Backend) { g.sync.SetBackends(list) })
}

// followOwn passes every state of one of the gateway's own resources to set, once the
// last-good discovery of servers is restored: it belongs to them.
func followOwn[T any](ctx context.Context, g *Gateway, r *rest.Resource, set func([]T)) error {
	// Unchanged objects are not decoded again: with thousands of them most changes are of
	// one.
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
