package gateway

import (
	"errors"
	"net/http"

	"portico/resource/serve"
)

// complete reports whether all paths are installed.
func (g *Gateway) complete() bool {
	return g.cache.Ready() && g.sync.Ready() && g.access.Ready() == nil
}

func (g *Gateway) addHealthChecks() {
	notReady := func(ok func() bool, text string) func(*http.Request) error {
		return func(*http.Request) error {
			if ok() {
				return nil
			}
			return errors.New(text)
		}
	}
	g.health.AddStorage(g.etcd.Healthy)
	g.health.AddReady("informer-sync", notReady(g.cache.Ready, "not all resources are followed yet"))
	g.health.AddReady("poststarthook/rbac/bootstrap-roles", func(*http.Request) error { return g.access.Ready() })
	g.health.AddReady("poststarthook/apiservice-registration-controller", notReady(g.sync.Ready, "no route table yet"))
	g.health.AddReady("poststarthook/apiservice-discovery-controller", notReady(g.sync.Ready, "no discovery documents yet"))
	g.health.AddAside(serve.WritesCheck, func(*http.Request) error { return g.admission.Ready() })
	g.health.AddReady("autoregister-completion", notReady(g.registered, "not all APIServices of the gateway are registered yet"))
}

// registered reports whether every own group of the gateway has its APIService. The
// gateway does not wait for those of other servers.
func (g *Gateway) registered() bool {
	t := g.sync.Table()
	for _, gv := range g.own {
		if t.Lookup(gv.Group, gv.Version) == nil {
			return false
		}
	}
	return true
}
