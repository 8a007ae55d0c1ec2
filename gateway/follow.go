package gateway

import (
	"context"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/resource"
	"portico/resource/loop"
)

// followWindow is how long after a change of an APIService more are waited for:
// who made it wants to use it.
const followWindow = time.Millisecond

// followAPIServices hands every state of the stored APIServices to sync.
func (g *Gateway) followAPIServices(ctx context.Context) error {
	services := g.registrar.services
	// What did not change is not decoded again: with thousands registered, most
	// news is about one.
	decoded := map[*resource.Object]*apireg.APIService{}
	return loop.Follow(ctx, services.Store, loop.FollowOptions{Logger: g.log, Window: followWindow}, func(s loop.Snapshot) {
		list := make([]*apireg.APIService, 0, len(s.Items))
		before := decoded
		decoded = make(map[*resource.Object]*apireg.APIService, len(s.Items))
		for _, o := range s.Items {
			if a := before[o]; a != nil {
				decoded[o] = a
				list = append(list, a)
				continue
			}
			obj, err := services.Decode(o)
			if err != nil {
				g.log.Error("an APIService does not decode and is left out", "name", o.Name, "err", err)
				continue
			}
			a := obj.(*apireg.APIService)
			decoded[o] = a
			list = append(list, a)
		}
		if g.lastGood != nil && !g.lastGood.await(ctx) {
			return // what their servers said last belongs to them
		}
		g.sync.setAPIServices(list)
	})
}
