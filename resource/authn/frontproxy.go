package authn

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"slices"

	"portico/resource"
)

// FrontProxyConfig configures which front proxies are trusted.
type FrontProxyConfig struct {
	// CAs returns the CAs of front-proxy certificates. It is called for every request;
	// nil trusts no proxy. Required.
	CAs func() *x509.CertPool
	// AllowedNames are the accepted common names; empty: any.
	AllowedNames []string
	// Headers name the user; zero: [DefaultHeaderNames]. Set other names in the Config of
	// resource/serve too, which removes these headers.
	Headers HeaderNames
}

// FrontProxyAuthenticator authenticates the users in the headers of front proxies.
type FrontProxyAuthenticator interface {
	Authenticator
	// Vouches reports whether the client's certificate is that of a front proxy, also if
	// the request names no user.
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
			return nil, fmt.Errorf("the common name %q is not allowed for a front proxy", leaf.Subject.CommonName)
		}
		return nil, nil
	}
	return &frontProxy{chains: newChains(cfg.CAs, check), headers: cfg.Headers.orDefault()}
}

// FrontProxyOnly accepts requests of gateways only: of clients with a certificate of the
// CA in caFile (read again when it changes) and one of the common names (none: any), and,
// on a unix socket, of peers with the uid of this process. Without a caFile it accepts only
// the latter. Users have the constraint that AddConstraint added.
func FrontProxyOnly(caFile string, names []string) (Authenticator, error) {
	if caFile == "" {
		return withConstraint{PeerUID()}, nil
	}
	ca, err := NewCAFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("load front-proxy CA: %w", err)
	}
	return withConstraint{Union(PeerUID(), FrontProxy(FrontProxyConfig{CAs: ca.Pool, AllowedNames: names}))}, nil
}

// withConstraint adds to the users of front proxies the constraint in the headers.
type withConstraint struct{ Authenticator }

func (w withConstraint) Authenticate(r *http.Request) (*resource.User, bool, error) {
	user, ok, err := w.Authenticator.Authenticate(r)
	if !ok {
		return user, ok, err
	}
	if user.Constraint, err = constraint(r.Header); err != nil {
		return nil, false, err
	}
	return user, true, nil
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

type peerUIDKey struct{}

// WithPeerUID returns the context of a connection with the uid of its peer, as reported by
// the kernel. Only listeners call it.
func WithPeerUID(ctx context.Context, uid int) context.Context {
	return context.WithValue(ctx, peerUIDKey{}, uid)
}

// PeerUIDFrom returns the uid of the peer of a unix socket; false if it is not known.
func PeerUIDFrom(ctx context.Context) (int, bool) {
	uid, ok := ctx.Value(peerUIDKey{}).(int)
	return uid, ok
}

// PeerUID trusts the X-Remote-* headers of peers on unix sockets that run under the
// effective uid of this process. On one machine it replaces the front-proxy certificate. It
// does not claim requests of other peers or without a user.
func PeerUID() Authenticator { return &peerUID{os.Geteuid(), DefaultHeaderNames()} }

type peerUID struct {
	uid     int
	headers HeaderNames
}

func (p *peerUID) Authenticate(r *http.Request) (*resource.User, bool, error) {
	uid, known := PeerUIDFrom(r.Context())
	if !known || uid != p.uid {
		return nil, false, nil
	}
	user := p.headers.user(r.Header)
	return user, user != nil, nil
}
