package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"portico/resource"
	"portico/resource/authn"
)

// upstream is one server behind the gateway and the ways to it. It lives as
// long as something routes to it; its addresses may change meanwhile.
type upstream struct {
	id         string // identity: two routes with equal ids share the upstream
	base       *url.URL
	endpoints  *endpoints
	transports *transports
	// short answers requests with a deadline, long those without, upgrade
	// those that leave HTTP.
	short, long, upgrade http.Handler
}

// newUpstream returns the ways to a server. broken is told of connections and
// requests that failed; it must not block.
func newUpstream(id string, base *url.URL, e *endpoints, t trust, p *proxies, broken func()) *upstream {
	up := &upstream{id: id, base: base, endpoints: e, transports: newTransports(e, t, broken)}
	up.short, up.long, up.upgrade = p.build(base, up.transports, broken)
	return up
}

// close lets go of idle connections; requests under way finish.
func (u *upstream) close() { u.transports.close() }

// RoundTrip sends the gateway's own request to the server. The request must
// carry its identity already.
func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = u.base.Scheme, u.base.Host, u.base.Host
	if resource.ParseAction(req).LongRunning() {
		return u.transports.long.RoundTrip(out)
	}
	return u.transports.short.RoundTrip(out)
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

// parseBackendURL reads where a configured backend is: unix:///path or
// https://host:port. The returned base is what requests are addressed to.
func parseBackendURL(name, text string) (base *url.URL, network, address string, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, "", "", fmt.Errorf("backend %s: %w", name, err)
	}
	switch {
	case u.Scheme == "unix" && u.Path != "":
		return &url.URL{Scheme: "http", Host: name}, "unix", u.Path, nil
	case u.Scheme == "https" && u.Host != "":
		address := u.Host
		if u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "443")
		}
		return &url.URL{Scheme: "https", Host: u.Host}, "tcp", address, nil
	}
	return nil, "", "", fmt.Errorf("backend %s: URL %q must be unix:///path or https://host:port", name, text)
}

// digest makes a short name of bytes, for identities.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// isDialError reports whether connecting failed, so that nothing was sent.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
