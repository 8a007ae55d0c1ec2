package authentication

import (
	"context"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource/authn"
	"portico/resource/egress"
)

// Config says which credentials the gateway accepts. Files are read again when they change.
type Config struct {
	// ClientCAFile has the CAs of client certificates, which name users (CN) and groups (O).
	// "" accepts none.
	ClientCAFile string
	// ClientCRLFile has lists of revoked certificates of these CAs; "": none are revoked.
	ClientCRLFile string
	// RequestHeader says which clients are front proxies.
	RequestHeader RequestHeader
	// TokenAuthFile is a CSV file of static tokens: token,user,uid,"group,group". "": none.
	TokenAuthFile string
	// ServiceAccounts says which tokens of service accounts are accepted.
	ServiceAccounts ServiceAccounts
	// BootstrapTokens accepts bootstrap tokens.
	BootstrapTokens bool
	// APIAudiences are the audiences of tokens. Default: the issuers of service-account tokens.
	APIAudiences []string
	// ConfigFile is kube-apiserver's AuthenticationConfiguration: issuers of tokens, and requests
	// without a credential. "": OIDC and AnonymousAuth apply.
	ConfigFile string
	// OIDC is one issuer instead of those of ConfigFile.
	OIDC OIDC
	// Webhook is asked about tokens that nothing else accepts.
	Webhook Webhook
	// Egress says how connections to issuers and to the webhook leave the process.
	Egress egress.Selector
	// AnonymousAuth authenticates requests without a credential as system:anonymous. If it was set
	// by an operator, AnonymousSet, ConfigFile must not configure the same.
	AnonymousAuth, AnonymousSet bool
}

// RequestHeader configures front proxies.
type RequestHeader struct {
	// CAFile has the CAs of front proxies. "": there are none.
	CAFile string
	// AllowedNames are the common names of their certificates. Empty: any.
	AllowedNames []string
	// Headers name the user. Default: authn.DefaultHeaderNames, each.
	Headers authn.HeaderNames
}

// ServiceAccounts configures tokens of service accounts.
type ServiceAccounts struct {
	// Issuers are the accepted iss, and KeyFiles the PEM files of the keys that verify tokens.
	// Empty: none are accepted.
	Issuers, KeyFiles []string
	// JWKSURI is where the discovery document says that the keys are. Default: at the first
	// issuer.
	JWKSURI string
	// Lookup: tokens of Secrets are good only while the Secret has them.
	Lookup bool
}

// Complete fills in the defaults.
func (cfg *Config) Complete() {
	if len(cfg.APIAudiences) == 0 {
		cfg.APIAudiences = cfg.ServiceAccounts.Issuers
	}
	names, all := &cfg.RequestHeader.Headers, authn.DefaultHeaderNames()
	for _, of := range []struct {
		to       *[]string
		standard []string
	}{{&names.User, all.User}, {&names.UID, all.UID}, {&names.Group, all.Group}, {&names.ExtraPrefix, all.ExtraPrefix}} {
		if len(*of.to) == 0 {
			*of.to = of.standard
		}
	}
}

// IdentityHeaders returns the headers that name a user, besides X-Remote-*, which are always removed.
func (cfg *Config) IdentityHeaders() (names authn.HeaderNames) {
	other := func(all []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return authn.HasFoldedPrefix(name, "x-remote-") })
	}
	of := cfg.RequestHeader.Headers
	return authn.HeaderNames{User: other(of.User), UID: other(of.UID), Group: other(of.Group), ExtraPrefix: other(of.ExtraPrefix)}
}

// Check returns what New refuses in each part of the configuration and in its files; nil for a part that it accepts.
func (cfg *Config) Check() (out []error) {
	for _, part := range []Config{
		{ConfigFile: cfg.ConfigFile, OIDC: cfg.OIDC, ServiceAccounts: ServiceAccounts{Issuers: cfg.ServiceAccounts.Issuers}, Egress: cfg.Egress, AnonymousSet: cfg.AnonymousSet},
		{RequestHeader: cfg.RequestHeader},
		{ClientCAFile: cfg.ClientCAFile, ClientCRLFile: cfg.ClientCRLFile},
		{TokenAuthFile: cfg.TokenAuthFile},
		{ServiceAccounts: cfg.ServiceAccounts},
		{Webhook: cfg.Webhook, Egress: cfg.Egress},
	} {
		_, err := New(part, Dependencies{Logger: slog.New(slog.DiscardHandler)})
		out = append(out, err)
	}
	return out
}

// Certificates returns the files of certificates that authentication depends on.
func (cfg *Config) Certificates() []authn.CertificateFile {
	return []authn.CertificateFile{
		{Usage: "client-ca", Path: cfg.ClientCAFile, CA: true},
		{Usage: "requestheader-client-ca", Path: cfg.RequestHeader.CAFile, CA: true},
	}
}

// Dependencies are what authenticators need of the gateway.
type Dependencies struct {
	// Account, Bound and Secret look up what service-account tokens name; see
	// authn.ServiceAccountConfig.
	Account func(ctx context.Context, namespace, name, claimed string) (uid string, found bool, err error)
	Bound   func(ctx context.Context, kind, namespace, name string) (uid string, found bool, err error)
	Secret  func(ctx context.Context, namespace, name string) (*authn.TokenSecret, error)
	// BootstrapSecret looks up a Secret of a bootstrap token; see authn.BootstrapTokens.
	BootstrapSecret func(ctx context.Context, name string) (*authn.BootstrapSecret, error)
	// Host is the name of the host; metrics have its hash, as label apiserver_id_hash.
	Host string
	// Registry registers metrics; nil: none.
	Registry prometheus.Registerer
	Logger   *slog.Logger
}
