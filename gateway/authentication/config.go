package authentication

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource/authn"
)

// Config says which credentials the gateway accepts. Files are read again when they change.
type Config struct {
	// ClientCAFile has the CAs of client certificates, which name users (CN) and groups (O).
	// "" accepts none.
	ClientCAFile string
	// RequestHeaderCAFile has the CA of front proxies: X-Remote-* is accepted from clients with
	// a certificate of it and a CN in RequestHeaderAllowedNames (empty: any). "" accepts none.
	RequestHeaderCAFile       string
	RequestHeaderAllowedNames []string
	// TokenAuthFile is a CSV file of static tokens: token,user,uid,"group,group". "": none.
	TokenAuthFile string
	// ServiceAccountIssuer is the iss of service-account tokens, and ServiceAccountKeyFiles
	// are the PEM keys that verify them. Empty accepts none.
	ServiceAccountIssuer   string
	ServiceAccountKeyFiles []string
	// APIAudiences are the audiences of tokens. Default: the issuer.
	APIAudiences []string
	// AnonymousAuth authenticates requests without a credential as system:anonymous.
	AnonymousAuth bool
}

// Complete fills in the defaults.
func (cfg *Config) Complete() {
	if len(cfg.APIAudiences) == 0 && cfg.ServiceAccountIssuer != "" {
		cfg.APIAudiences = []string{cfg.ServiceAccountIssuer}
	}
}

// Certificates returns the files of certificates that authentication depends on.
func (cfg *Config) Certificates() []authn.CertificateFile {
	return []authn.CertificateFile{
		{Usage: "client-ca", Path: cfg.ClientCAFile, CA: true},
		{Usage: "requestheader-client-ca", Path: cfg.RequestHeaderCAFile, CA: true},
	}
}

// Dependencies are what authenticators need of the gateway.
type Dependencies struct {
	// Account, Bound and Secret look up what service-account tokens name; see
	// authn.ServiceAccountConfig.
	Account func(ctx context.Context, namespace, name string) (uid string, found bool, err error)
	Bound   func(ctx context.Context, kind, namespace, name string) (uid string, found bool, err error)
	Secret  func(ctx context.Context, namespace, name string) (*authn.TokenSecret, error)
	// Registry registers metrics; nil: none.
	Registry prometheus.Registerer
	Logger   *slog.Logger
}
