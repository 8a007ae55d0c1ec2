package server

import (
	"github.com/spf13/pflag"

	"portico/gateway/authentication"
	"portico/resource/authn"
)

// addAuthentication adds the flags of the credentials that the gateway accepts, but for those of
// front proxies.
func addAuthentication(fs *pflag.FlagSet, cfg *authentication.Config) {
	fs.StringVar(&cfg.ClientCAFile, "client-ca-file", "", "PEM `file` of CAs; their client certificates name users (CN) and groups (O) (default: none)")
	addIssuers(fs, &cfg.ServiceAccounts.Issuers)
	fs.StringArrayVar(&cfg.ServiceAccounts.KeyFiles, "service-account-key-file", nil, "PEM `file` of keys that verify service-account tokens. May be repeated")
	fs.StringSliceVar(&cfg.APIAudiences, "api-audiences", nil, "comma-separated `audiences`, one of which a token must have (default: the issuers)")
	fs.StringVar(&cfg.TokenAuthFile, "token-auth-file", "", "CSV `file` of static tokens, one per line: token,user,uid,\"group,group\"")
	fs.BoolVar(&cfg.AnonymousAuth, "anonymous-auth", true, "authenticate requests without credentials as system:anonymous")
	AddTokens(fs, cfg)
}

// AddTokens adds those of them that portico up passes on.
func AddTokens(fs *pflag.FlagSet, cfg *authentication.Config) {
	fs.StringVar(&cfg.ClientCRLFile, "client-crl-file", "", "PEM `file` of lists of revoked client certificates, signed by their authorities (default: none are revoked)")
	fs.StringVar(&cfg.ServiceAccounts.JWKSURI, "service-account-jwks-uri", "", "`URL` of the keys in /.well-known/openid-configuration (default: /openid/v1/jwks of the issuer)")
	fs.BoolVar(&cfg.ServiceAccounts.Lookup, "service-account-lookup", true, "accept tokens of Secrets only while the Secret has them")
	fs.BoolVar(&cfg.BootstrapTokens, "enable-bootstrap-token-auth", false, "accept bootstrap tokens: those of Secrets of the type bootstrap.kubernetes.io/token in kube-system")
	names := &cfg.RequestHeader.Headers
	fs.StringSliceVar(&names.User, "requestheader-username-headers", nil, "comma-separated `headers` in which front proxies name the user (default: "+authn.HeaderUser+")")
	fs.StringSliceVar(&names.UID, "requestheader-uid-headers", nil, "comma-separated `headers` in which front proxies name the user's uid (default: "+authn.HeaderUID+")")
	fs.StringSliceVar(&names.Group, "requestheader-group-headers", nil, "comma-separated `headers` in which front proxies name the user's groups (default: "+authn.HeaderGroup+")")
	fs.StringSliceVar(&names.ExtraPrefix, "requestheader-extra-headers-prefix", nil, "comma-separated `prefixes` of headers in which front proxies name extras of the user (default: "+authn.HeaderExtraPrefix+")")
}

// addIssuers adds --service-account-issuer.
func addIssuers(fs *pflag.FlagSet, to *[]string) {
	fs.StringArrayVar(to, "service-account-issuer", nil, "`issuer` of service-account tokens; of several the first signs (default: none)")
}
