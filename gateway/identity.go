package gateway

import (
	"context"
	"fmt"
	"net/http"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/authz"
)

// authenticator returns the gateway's Authenticator, in kube-apiserver's order.
func (g *Gateway) authenticator() (authn.Authenticator, error) {
	var all []authn.Authenticator
	if g.cfg.RequestHeaderCAFile != "" {
		ca, err := authn.NewCAFile(g.cfg.RequestHeaderCAFile)
		if err != nil {
			return nil, fmt.Errorf("load front-proxy CA: %w", err)
		}
		g.frontProxy = authn.FrontProxy(authn.FrontProxyConfig{
			CAs: ca.Pool, AllowedNames: g.cfg.RequestHeaderAllowedNames, Headers: authn.DefaultHeaderNames(),
		})
		all = append(all, g.frontProxy)
	}
	if g.cfg.ClientCAFile != "" {
		ca, err := authn.NewCAFile(g.cfg.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("load client CA: %w", err)
		}
		all = append(all, authn.ClientCert(ca.Pool))
	}
	tokens, err := g.tokens()
	if err != nil {
		return nil, err
	}
	if len(tokens) > 0 {
		all = append(all, authn.Bearer(tokens...))
	}
	if g.cfg.AnonymousAuth {
		all = append(all, authn.Anonymous())
	}
	return authn.Union(all...), nil
}

// refuseLoop refuses a request that returns to this gateway (upstream.Via).
func (g *Gateway) refuseLoop(r *http.Request) error {
	return g.via.Admit(r.Header, func() bool { return g.frontProxy != nil && g.frontProxy.Vouches(r) })
}

// tokens returns the authenticators of bearer tokens.
func (g *Gateway) tokens() (out []authn.TokenAuthenticator, err error) {
	if g.cfg.TokenAuthFile != "" {
		static, err := authn.TokenFile(g.cfg.TokenAuthFile)
		if err != nil {
			return nil, fmt.Errorf("load token file: %w", err)
		}
		out = append(out, static)
	}
	if g.cfg.ServiceAccountIssuer == "" || len(g.cfg.ServiceAccountKeyFiles) == 0 {
		return out, nil
	}
	keys, err := authn.NewPublicKeys(g.cfg.ServiceAccountKeyFiles...)
	if err != nil {
		return nil, fmt.Errorf("load service account keys: %w", err)
	}
	g.issuer = authn.IssuerDiscovery(g.cfg.ServiceAccountIssuer, keys.Keys)
	return append(out, authn.ServiceAccounts(authn.ServiceAccountConfig{
		Issuer: g.cfg.ServiceAccountIssuer, Keys: keys.Keys, Audiences: g.cfg.APIAudiences,
		Lookup: g.core.lookupServiceAccount, Bound: g.core.lookupBound, Secret: g.core.lookupTokenSecret,
		Metrics: g.metrics.Registry(),
	})), nil
}

// authorize decides about a further action than the one of the request: create by PUT.
func (g *Gateway) authorize(ctx context.Context, a *resource.Action) error {
	decision, reason, err := g.access.Authorize(ctx, a)
	if err != nil && decision != authz.Allow {
		reason = err.Error()
	}
	if decision == authz.Allow {
		return nil
	}
	return authz.Forbidden(a, reason)
}
