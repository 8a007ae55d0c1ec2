package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource/loop"
	"portico/resource/serve"
)

// addHealthChecks adds the checks of the gateway, which is ready without the core and the CRD server.
func (g *Gateway) addHealthChecks() {
	g.health.AddStorage(g.etcd.Healthy)
	g.encrypted.AddChecks(g.health.AddReady)
	g.health.AddInformerSync(g.cache.Ready)
	g.health.AddAside(serve.WritesCheck, func(*http.Request) error { return g.admission.Ready() })
	g.addPostStartChecks()
	g.addServerChecks()
}

// addPostStartChecks adds checks of the start of the gateway. A check that waits for another server is
// optional (docs/wire.md 1.5).
func (g *Gateway) addPostStartChecks() {
	stored := serve.Until(g.cache.Ready, "the watch cache has not been filled yet")
	g.health.AddPostStartCheck("poststarthook/generic-apiserver-start-informers", stored)
	g.health.AddPostStartCheck("poststarthook/storage-readiness", stored)
	g.health.AddPostStartCheck("poststarthook/rbac/bootstrap-roles", g.access.Ready)
	g.encrypted.AddPostStartCheck(g.health.AddPostStartCheck)
	g.health.AddPostStartCheck("poststarthook/start-kube-aggregator-informers", serve.Until(g.sync.Known, "APIServices and Backends have not been read yet"))
	g.health.AddPostStartCheck("poststarthook/apiservice-registration-controller", serve.Until(g.sync.Ready, "routes have not been computed yet"))
	g.health.AddPostStartCheck("poststarthook/apiservice-discovery-controller", serve.Until(g.sync.Discovered, "the discovery of servers has not been read yet"))
	g.health.AddPostStartCheck("poststarthook/apiservice-status-local-available-controller",
		serve.Until(func() bool { return g.sync.Conditions() != nil }, "the conditions of APIServices have not been computed yet"))
	g.health.AddPostStartCheck("poststarthook/apiservice-openapi-controller",
		serve.Until(func() bool { return g.sync.OpenAPI() != nil }, "the index of OpenAPI documents has not been computed yet"))
	g.health.AddPostStartCheck("autoregister-completion", serve.Until(g.registered, "not all APIServices of the gateway are registered yet"))
	g.health.AddOptionalPostStartCheck("poststarthook/start-apiserver-admission-initializer", g.admissionInitialized)
	g.health.AddOptionalPostStartCheck("poststarthook/start-cluster-authentication-info-controller",
		serve.Until(g.publisher.published.Load, "ConfigMap extension-apiserver-authentication has not been stored yet"))
	g.health.AddOptionalPostStartCheck("poststarthook/apiservice-status-remote-available-controller",
		serve.Until(g.sync.AllChecked, "not every APIService has been checked yet"))
	g.health.AddOptionalPostStartCheck("poststarthook/kube-apiserver-autoregistration",
		serve.Until(g.registration.Autoregistered, "the missing APIServices have not been stored yet"))
}

// registered reports whether every group that the gateway itself serves has its APIService. The
// gateway does not wait for APIServices of other servers.
func (g *Gateway) registered() bool {
	t := g.sync.Table()
	for _, gv := range g.own {
		if t.Lookup(gv.Group, gv.Version) == nil {
			return false
		}
	}
	return true
}

// admissionInitialized returns nil once the configurations of admission have been read from their server. Before that
// server is registered, writes do not wait for any, and there is nothing to read.
func (g *Gateway) admissionInitialized() error {
	if !g.isRegistered(admissionv1.GroupName) {
		return errors.New("no server of admission configurations is registered yet")
	}
	return g.admission.Ready()
}

// serverCheck is a post-start check of the server of a group/version.
type serverCheck struct {
	gv     schema.GroupVersion
	name   string
	result atomic.Pointer[error] // of the last request; nil before the first
}

func (c *serverCheck) check() error {
	if err := c.result.Load(); err != nil {
		return *err
	}
	return errors.New("the server has not been asked yet")
}

func (g *Gateway) addServerChecks() {
	for _, s := range serversBehind {
		for _, name := range s.checks {
			c := &serverCheck{gv: s.gv, name: name}
			g.serverChecks = append(g.serverChecks, c)
			g.health.AddOptionalPostStartCheck(name, c.check)
		}
	}
}

// askServers asks the core and the CRD server for their post-start checks that have not passed. It returns the last
// failure.
func (g *Gateway) askServers(ctx context.Context) (failed error) {
	for _, c := range g.serverChecks {
		if c.check() == nil {
			continue
		}
		err := g.get(ctx, c.gv, "/healthz/"+c.name)
		c.result.Store(&err)
		if err != nil {
			failed = err
		}
	}
	return failed
}

// followServerChecks asks the servers, each second at first, until all checks have passed. It returns when ctx ends.
func (g *Gateway) followServerChecks(ctx context.Context) error {
	if err := loop.Retry(ctx, loop.Backoff{Initial: time.Second, Max: 10 * time.Second}, g.askServers); err != nil {
		return err
	}
	<-ctx.Done() // loop.Together ends all parts when one returns
	return ctx.Err()
}
