package authn

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"

	"portico/resource"
)

// FrontProxyConfig names the proxies that are trusted to name users.
type FrontProxyConfig struct {
	// CAs returns the CAs of front-proxy certificates. It is called for every request;
	// nil trusts no proxy. Required.
	CAs func() *x509.CertPool
	// AllowedNames are the common names that count; empty: any.
	AllowedNames []string
	// Headers name the user; zero: [DefaultHeaderNames]. Others must be in the Config of
	// resource/serve too, which removes them.
	Headers HeaderNames
}

// FrontProxyAuthenticator authenticates users that front proxies name, and recognises
// front proxies.
type FrontProxyAuthenticator interface {
	Authenticator
	// Vouches reports whether the client's certificate is that of a front proxy,
	// whether or not the request names a user.
	Vouches(r *http.Request) bool
}

// FrontProxy takes the user from the identity headers of a proxy with a valid client
// certificate (docs/wire.md 7.1, 7.2). A request without a certificate, or of a valid
// proxy that names no user, is not claimed; one with any other certificate is an
// error, which counts only if no other authenticator claims the request.
func FrontProxy(cfg FrontProxyConfig) FrontProxyAuthenticator {
	names := slices.Clone(cfg.AllowedNames)
	check := func(leaf *x509.Certificate) (*resource.User, error) {
		if len(names) > 0 && !slices.Contains(names, leaf.Subject.CommonName) {
			return nil, fmt.Errorf("the common name %q is not one of a front proxy", leaf.Subject.CommonName)
		}
		return nil, nil
	}
	return &frontProxy{chains: newChains(cfg.CAs, check), headers: cfg.Headers.orDefault()}
}

// FrontProxyOnly accepts requests of gateways only: clients with a certificate of the
// CA in caFile (read again when it changes) and one of the common names (none: any),
// or, on a unix socket, peers of the same uid. Without a caFile only the latter.
func FrontProxyOnly(caFile string, names []string) (Authenticator, error) {
	if caFile == "" {
		return PeerUID(), nil
	}
	ca, err := NewCAFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("load front-proxy CA: %w", err)
	}
	return Union(PeerUID(), FrontProxy(FrontProxyConfig{CAs: ca.Pool, AllowedNames: names})), nil
}

type frontProxy struct {
	chains  *chains
	headers HeaderNames
}

func (f *frontProxy) Authenticate(r *http.Request) (*resource.User, bool, error) {
	presented, _, err := f.chains.verify(r.TLS)
	if !presented {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("verify front-proxy certificate: %w", err)
	}
	user := f.headers.user(r.Header)
	return user, user != nil, nil
}

func (f *frontProxy) Vouches(r *http.Request) bool {
	presented, _, err := f.chains.verify(r.TLS)
	return presented && err == nil
}

func (n HeaderNames) orDefault() HeaderNames {
	if n.User == nil {
		return DefaultHeaderNames()
	}
	return n
}
