package gateway

import (
	"context"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/resource/loop"
)

// followAPIServices hands every state of the stored APIServices to sync.
func (g *Gateway) followAPIServices(ctx context.Context) error {
	services := g.registrar.services
	return loop.Follow(ctx, services.Store, loop.FollowOptions{Logger: g.log}, func(s loop.Snapshot) {
		list := make([]*apireg.APIService, 0, len(s.Items))
		for _, o := range s.Items {
			obj, err := services.Decode(o)
			if err != nil {
				g.log.Error("an APIService does not decode and is left out", "name", o.Name, "err", err)
				continue
			}
			list = append(list, obj.(*apireg.APIService))
		}
		g.sync.setAPIServices(list)
	})
}
