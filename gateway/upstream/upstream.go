package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"portico/resource"
)

// Config of an Upstream.
type Config struct {
	// Base is the scheme and host that requests are addressed to. Required.
	Base *url.URL
	// Network and Addresses are where the server is: "tcp" and host:port, or
	// "unix" and the path of a socket.
	Network   string
	Addresses []string
	Trust     Trust
	// Broken is told of connections that broke. It must not block. Required.
	Broken func()
}

// Upstream is one server behind the gateway and the ways to it. It lives as
// long as something routes to it; its addresses may change meanwhile. Safe for
// concurrent use.
type Upstream struct {
	base      *url.URL
	endpoints *endpoints
	ways      *ways
}

// New returns the ways to a server. Nothing is connected to before it is
// needed.
func New(cfg Config) *Upstream {
	e := newEndpoints(cfg.Network, cfg.Addresses)
	return &Upstream{base: cfg.Base, endpoints: e, ways: newWays(e, cfg.Trust, cfg.Broken)}
}

// Base is the scheme and host that requests are addressed to. It is not to be
// changed.
func (u *Upstream) Base() *url.URL { return u.base }

// SetAddresses replaces where the server is, for connections to come.
func (u *Upstream) SetAddresses(addresses []string) { u.endpoints.set(addresses) }

// Short is the way for requests with a deadline.
func (u *Upstream) Short() http.RoundTripper { return u.ways.short }

// Long is the way for requests without one.
func (u *Upstream) Long() http.RoundTripper { return u.ways.long }

// Upgrade is the way for requests that leave HTTP.
func (u *Upstream) Upgrade() http.RoundTripper { return u.ways.upgrade }

// Close lets go of idle connections; requests under way finish.
func (u *Upstream) Close() { u.ways.close() }

// RoundTrip sends the gateway's own request to the server, wherever it was
// addressed. The request must carry its identity already.
func (u *Upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = u.base.Scheme, u.base.Host, u.base.Host
	if resource.ParseAction(req).LongRunning() {
		return u.ways.long.RoundTrip(out)
	}
	return u.ways.short.RoundTrip(out)
}

// ParseURL reads where a server is: unix:///path or https://host:port. The
// returned base is what requests are addressed to; to a socket, by the server's
// name.
func ParseURL(name, text string) (base *url.URL, network, address string, err error) {
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

// IsDialError reports whether connecting failed, so that nothing was sent.
func IsDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
