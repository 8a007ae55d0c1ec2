package authentication

import (
	"fmt"
	"net/http"

	"portico/resource/authn"
)

// Authentication is the authentication of the gateway. Safe for concurrent use.
type Authentication struct {
	// Authenticator is for requests and TokenReviews.
	authn.Authenticator
	// FrontProxy is the part for front proxies; nil: no client is a front proxy.
	FrontProxy authn.FrontProxyAuthenticator
	// Issuer serves the documents of the service-account issuer; nil: none.
	Issuer http.Handler
}

// New reads the files of the configuration, which must be complete.
func New(cfg Config, deps Dependencies) (*Authentication, error) {
	a := &Authentication{}
	var all []authn.Authenticator
	if cfg.RequestHeaderCAFile != "" {
		ca, err := authn.NewCAFile(cfg.RequestHeaderCAFile)
		if err != nil {
			return nil, fmt.Errorf("load front-proxy CA: %w", err)
		}
		a.FrontProxy = authn.FrontProxy(authn.FrontProxyConfig{
			CAs: ca.Pool, AllowedNames: cfg.RequestHeaderAllowedNames, Headers: authn.DefaultHeaderNames(),
		})
		all = append(all, a.FrontProxy)
	}
	if cfg.ClientCAFile != "" {
		ca, err := authn.NewCAFile(cfg.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("load client CA: %w", err)
		}
		all = append(all, authn.ClientCert(ca.Pool))
	}
	tokens, err := a.tokens(cfg, deps)
	if err != nil {
		return nil, err
	}
	if len(tokens) > 0 {
		all = append(all, authn.Bearer(tokens...))
	}
	if cfg.AnonymousAuth {
		all = append(all, authn.Anonymous())
	}
	a.Authenticator = authn.Union(all...)
	return a, nil
}

// tokens returns the authenticators of bearer tokens: local ones first, then those that ask other
// servers.
func (a *Authentication) tokens(cfg Config, deps Dependencies) (out []authn.TokenAuthenticator, err error) {
	if cfg.TokenAuthFile != "" {
		static, err := authn.TokenFile(cfg.TokenAuthFile)
		if err != nil {
			return nil, fmt.Errorf("load token file: %w", err)
		}
		out = append(out, static)
	}
	accounts, err := a.serviceAccounts(cfg, deps)
	if err != nil {
		return nil, err
	}
	if accounts != nil {
		out = append(out, accounts)
	}
	return out, nil
}

// serviceAccounts returns the authenticator of service-account tokens; nil: none are accepted.
func (a *Authentication) serviceAccounts(cfg Config, deps Dependencies) (authn.TokenAuthenticator, error) {
	if cfg.ServiceAccountIssuer == "" || len(cfg.ServiceAccountKeyFiles) == 0 {
		return nil, nil
	}
	keys, err := authn.NewPublicKeys(cfg.ServiceAccountKeyFiles...)
	if err != nil {
		return nil, fmt.Errorf("load service account keys: %w", err)
	}
	a.Issuer = authn.IssuerDiscovery(cfg.ServiceAccountIssuer, "", keys.Keys)
	return authn.ServiceAccounts(authn.ServiceAccountConfig{
		Issuers: []string{cfg.ServiceAccountIssuer}, Keys: keys.Keys, Audiences: cfg.APIAudiences,
		Lookup: deps.Account, Bound: deps.Bound, Secret: deps.Secret, Metrics: deps.Registry,
	}), nil
}
