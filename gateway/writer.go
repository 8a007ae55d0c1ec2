package gateway

import "context"

// writerElection is the name of the election of the gateway that writes.
const writerElection = "gateway"

// campaign takes part in the election until ctx ends. The elected gateway writes the
// conditions of APIServices, the status of Backends and the last-good documents; every
// gateway routes by its own observations. Its writes are bound to its term: a gateway that
// was suspended does not write after another was elected.
func (g *Gateway) campaign(ctx context.Context) error {
	return g.etcd.Campaign(ctx, writerElection, g.cfg.InstanceID, func(term context.Context) {
		g.registration.Elect(term)
		g.lastGood.KeepEtcd(term)
	})
}
