package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico/gateway/lastgood"
	"portico/gateway/proxy"
	"portico/resource"
	"portico/resource/authn"
	"portico/resource/client"
	"portico/resource/loop"
)

// maxFollowPause bounds the wait between attempts to follow the core server, and thus the
// delay after it returns.
const maxFollowPause = 250 * time.Millisecond

// loopbackURL is the base URL of the gateway's requests to itself, which need no
// connection.
const loopbackURL = "http://portico"

// userAgent is the User-Agent of the gateway as a client.
const userAgent = "portico-gateway"

// coreClient reads and writes objects of other servers, mostly the core server: Services
// and EndpointSlices (the addresses of registered servers), ServiceAccounts (whether
// tokens are valid), the ConfigMap with the CAs that registered servers trust, namespaces,
// and the configurations of webhooks and policies. A request follows the route table; one
// for discovery or the gateway's own kinds is answered in this process. Followed objects
// remain while their server is away, also after a restart of the gateway (lastgood.go).
type coreClient struct {
	// table returns the current routes, and follow is called with every state of the
	// Services and EndpointSlices.
	table  func() *proxy.Table
	follow func(svc, eps loop.Snapshot)
	log    *slog.Logger
	client *client.Client
	// own answers requests that are not proxied. It is set before anything runs.
	own http.RoundTripper

	serviceAccounts atomic.Pointer[loop.Snapshot]
	// restoredAccounts are those of an earlier gateway, until there are serviceAccounts.
	restoredAccounts atomic.Pointer[lastgood.Identities]
	// tokens is told of changes of what service-account tokens depend on; nil: there are none.
	tokens *authn.ServiceAccountTokens
	// bootstrap: bootstrapSecrets, those of bootstrap tokens, are followed.
	bootstrap        bool
	bootstrapSecrets atomic.Pointer[loop.Snapshot]
	// secrets, pods and nodes are what tokens are bound to.
	secrets, pods, nodes boundObjects
}

func newCoreClient(table func() *proxy.Table, follow func(svc, eps loop.Snapshot), log *slog.Logger) *coreClient {
	c := &coreClient{table: table, follow: follow, log: log}
	c.client = client.New(client.Config{BaseURL: loopbackURL, Transport: c, UserAgent: userAgent})
	return c
}

func (c *coreClient) store(group, res, kind string) resource.Reader {
	return c.client.Reader(&resource.Info{Group: group, Versions: []string{"v1"}, Resource: res, Kind: kind, Namespaced: true})
}

// RoundTrip sends the gateway's own request to the server of its route.
func (c *coreClient) RoundTrip(req *http.Request) (*http.Response, error) {
	act := resource.ParseAction(req)
	rt := c.table().Lookup(act.Group, act.Version)
	switch {
	case c.own != nil && (!act.IsResource || rt != nil && rt.Local):
		return c.own.RoundTrip(req)
	case rt == nil || rt.Local:
		return nil, fmt.Errorf("no server is registered for %s", act.GroupVersion())
	}
	if err := rt.Unavailable(); err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	identifyGateway(out.Header)
	return rt.Upstream.RoundTrip(out)
}

// gatewayUser returns the user of the gateway's own requests.
func gatewayUser() *resource.User {
	return &resource.User{Name: "system:portico:gateway", Groups: []string{resource.GroupMasters, resource.GroupAuthenticated}}
}

// identifyGateway adds the user of the gateway's own requests to a header.
func identifyGateway(h http.Header) { authn.SetFrontProxyHeaders(h, gatewayUser()) }

// run follows Services, EndpointSlices and what tokens depend on until ctx ends.
func (c *coreClient) run(ctx context.Context) error {
	var latest pair
	return loop.Together(ctx,
		func(ctx context.Context) error {
			return loop.Follow(ctx, c.store("", "services", "Service"), c.options(), func(s loop.Snapshot) {
				latest.update(func() { latest.svc = &s }, c.follow)
			})
		},
		func(ctx context.Context) error {
			return loop.Follow(ctx, c.store("discovery.k8s.io", "endpointslices", "EndpointSlice"), c.options(), func(s loop.Snapshot) {
				latest.update(func() { latest.eps = &s }, c.follow)
			})
		},
		c.followTokens,
	)
}

// pair is the latest state of Services and EndpointSlices. Safe for concurrent use.
type pair struct {
	mu       sync.Mutex
	svc, eps *loop.Snapshot
}

// update changes one of them and passes on both once there are both. It holds the lock
// meanwhile, so that an older pair is not passed on after a newer one.
func (p *pair) update(change func(), follow func(svc, eps loop.Snapshot)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if p.svc != nil && p.eps != nil {
		follow(*p.svc, *p.eps)
	}
}

// options returns options with a short pause: start-up and every restart of the core
// server wait for it.
func (c *coreClient) options() loop.FollowOptions {
	return loop.FollowOptions{Logger: c.log, Backoff: loop.Backoff{Max: maxFollowPause}}
}
