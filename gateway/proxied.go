package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/authn"
)

// proxied is one server behind the gateway and the reverse proxies to it. It
// lives as long as something routes to it; its addresses may change meanwhile.
type proxied struct {
	*upstream.Upstream
	// short answers requests with a deadline, long those without, upgrade
	// those that leave HTTP.
	short, long, upgrade http.Handler
}

// newProxied makes the reverse proxies to a server.
func newProxied(cfg upstream.Config, p *proxies) *proxied {
	up := &proxied{Upstream: upstream.New(cfg)}
	up.short, up.long, up.upgrade = p.build(up.Upstream)
	return up
}

// identifyAggregator adds the identity under which the gateway asks servers
// for discovery (contract 8.2).
func identifyAggregator(h http.Header) {
	authn.SetFrontProxyHeaders(h, &resource.User{Name: resource.KubeAggregator, Groups: []string{resource.GroupMasters}})
}

// identifyGateway adds the identity of the gateway's own reads and writes in
// the core server.
func identifyGateway(h http.Header) {
	authn.SetFrontProxyHeaders(h, &resource.User{Name: "system:portico:gateway", Groups: []string{resource.GroupMasters, resource.GroupAuthenticated}})
}

// digest makes a short name of bytes, for identities.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
