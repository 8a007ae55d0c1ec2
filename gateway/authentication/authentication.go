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
	// Accounts is the part for service-account tokens; nil: none are accepted.
	Accounts *authn.ServiceAccountTokens
	// Issuer serves the documents of the service-account issuer; nil: none.
	Issuer http.Handler
}

// New reads the files of the configuration, which must be complete.
func New(cfg Config, deps Dependencies) (*Authentication, error) {
	a := &Authentication{}
	var all []authn.Authenticator
	if cfg.RequestHeader.CAFile != "" {
		ca, err := authn.NewCAFile(cfg.RequestHeader.CAFile)
		if err != nil {
			return nil, fmt.Errorf("load front-proxy CA: %w", err)
		}
		a.FrontProxy = authn.FrontProxy(authn.FrontProxyConfig{
			CAs: ca.Pool, AllowedNames: cfg.RequestHeader.AllowedNames, Headers: cfg.RequestHeader.Headers,
		})
		all = append(all, a.FrontProxy)
	}
	if cfg.ClientCAFile != "" {
		ca, err := authn.NewCAFile(cfg.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("load client CA: %w", err)
		}
		var revocations *authn.Revocations
		if cfg.ClientCRLFile != "" {
			if revocations, err = authn.NewRevocations(cfg.ClientCRLFile, ca); err != nil {
				return nil, fmt.Errorf("--client-crl-file: %w", err)
			}
		}
		all = append(all, authn.RevocableClientCert(ca.Pool, revocations))
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
	if err := a.serviceAccounts(cfg, deps); err != nil {
		return nil, err
	}
	if a.Accounts != nil {
		out = append(out, a.Accounts)
	}
	if cfg.BootstrapTokens {
		out = append(out, authn.BootstrapTokens(deps.BootstrapSecret))
	}
	return out, nil
}

// serviceAccounts makes the authenticator of service-account tokens, and what publishes its keys.
func (a *Authentication) serviceAccounts(cfg Config, deps Dependencies) error {
	of := cfg.ServiceAccounts
	if len(of.Issuers) == 0 || len(of.KeyFiles) == 0 {
		return nil
	}
	keys, err := authn.NewPublicKeys(of.KeyFiles...)
	if err != nil {
		return fmt.Errorf("load service account keys: %w", err)
	}
	a.Issuer = authn.IssuerDiscovery(of.Issuers[0], of.JWKSURI, keys.Keys)
	a.Accounts = authn.ServiceAccounts(authn.ServiceAccountConfig{
		Issuers: of.Issuers, Keys: keys.Keys, Audiences: cfg.APIAudiences,
		Lookup: deps.Account, Bound: deps.Bound, Secret: deps.Secret, Unchecked: !of.Lookup, Metrics: deps.Registry,
	})
	return nil
}
