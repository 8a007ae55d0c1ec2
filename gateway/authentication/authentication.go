package authentication

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

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

	log       *slog.Logger
	clientCAs clientCAs
	// issuers are those of configuration, which is the content of file ("": it is of flags) with
	// this text; nil: none, and none can follow.
	issuers       *issuers
	configuration *apiserver.AuthenticationConfiguration
	file, text    string
}

// New reads the files of the configuration, which must be complete.
func New(cfg Config, deps Dependencies) (*Authentication, error) {
	a := &Authentication{log: deps.Logger}
	anonymous, err := a.configure(&cfg, deps)
	if err != nil {
		return nil, err
	}
	var all []authn.Authenticator
	if cfg.RequestHeader.CAFile != "" {
		ca, err := authn.NewCAFile(cfg.RequestHeader.CAFile)
		if err != nil {
			return nil, fmt.Errorf("load front-proxy CA: %w", err)
		}
		a.FrontProxy = authn.FrontProxy(authn.FrontProxyConfig{
			CAs: ca.Pool, AllowedNames: cfg.RequestHeader.AllowedNames, Headers: cfg.RequestHeader.Headers,
		})
		a.clientCAs.files = append(a.clientCAs.files, ca)
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
		a.clientCAs.files = slices.Insert(a.clientCAs.files, 0, ca) // in the order of kube-apiserver
		all = append(all, authn.RevocableClientCert(ca.Pool, revocations))
	}
	tokens, err := a.tokens(cfg, deps)
	if err != nil {
		return nil, err
	}
	if len(tokens) > 0 {
		all = append(all, authn.Bearer(tokens...))
	}
	if anonymous != nil {
		all = append(all, anonymous)
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
	if a.issuers != nil {
		out = append(out, tokens{a.issuers, cfg.APIAudiences})
	}
	if cfg.Webhook.ConfigFile != "" {
		hook, err := newWebhook(cfg.Webhook, cfg.APIAudiences, cfg.Egress.ControlPlane, deps.Registry)
		if err != nil {
			return nil, err
		}
		out = append(out, tokens{hook, cfg.APIAudiences})
	}
	return out, nil
}

// configure reads the configuration of issuers and of the anonymous user, by file or by flags, and
// returns the authenticator of the latter; nil: it is off.
func (a *Authentication) configure(cfg *Config, deps Dependencies) (anonymous authn.Authenticator, err error) {
	accounts := cfg.ServiceAccounts.Issuers
	if a.configuration, a.text, err = cfg.configuration(accounts); err != nil {
		return nil, err
	}
	a.file = cfg.ConfigFile
	if a.file != "" || len(a.configuration.JWT) > 0 {
		a.issuers = &issuers{algorithms: cfg.OIDC.SigningAlgs, accounts: accounts, audiences: cfg.APIAudiences, egress: cfg.Egress, host: deps.Host}
		if a.file != "" {
			a.issuers.algorithms = oidc.AllValidSigningAlgorithms()
		}
		if deps.Registry != nil {
			deps.Registry.MustRegister(a.issuers)
		}
	}
	of := a.configuration.Anonymous
	switch {
	case of != nil && cfg.AnonymousSet:
		return nil, field.Forbidden(field.NewPath("anonymous"), "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
	case of == nil && cfg.AnonymousAuth:
		return authn.Anonymous(), nil
	case of == nil || !of.Enabled:
		return nil, nil
	case len(of.Conditions) == 0:
		return authn.Anonymous(), nil
	}
	var paths []string
	for _, condition := range of.Conditions {
		paths = append(paths, condition.Path)
	}
	return authn.AnonymousAt(paths...), nil
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
