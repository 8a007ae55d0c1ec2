package gateway

import "context"

// writerElection is what gateways on one etcd elect: who writes what all of
// them could.
const writerElection = "gateway"

// campaign stands for election until ctx ends. The elected gateway keeps the
// conditions of APIServices, the status of Backends and the last-good documents;
// each routes on what it sees itself. It writes under its term: what it still had to
// write when it was stopped is not carried out once another is elected.
func (g *Gateway) campaign(ctx context.Context) error {
	return g.etcd.Campaign(ctx, writerElection, g.cfg.InstanceID, func(term context.Context) {
		g.registration.Elect(term)
		g.lastGood.KeepEtcd(term)
	})
}
