package server

import (
	"github.com/spf13/pflag"

	"portico/gateway/authentication"
)

// addAuthentication adds the flags of the credentials that the gateway accepts, but for those of
// front proxies.
func addAuthentication(fs *pflag.FlagSet, cfg *authentication.Config) {
	fs.StringVar(&cfg.ClientCAFile, "client-ca-file", "", "PEM `file` of CAs; their client certificates name users (CN) and groups (O) (default: none)")
	fs.StringVar(&cfg.ServiceAccountIssuer, "service-account-issuer", "", "`URL` of the issuer of service-account tokens (default: no such tokens are accepted)")
	fs.StringArrayVar(&cfg.ServiceAccountKeyFiles, "service-account-key-file", nil, "PEM `file` of keys that verify service-account tokens. May be repeated")
	fs.StringSliceVar(&cfg.APIAudiences, "api-audiences", nil, "comma-separated `audiences`, one of which a token must have (default: the issuer)")
	fs.StringVar(&cfg.TokenAuthFile, "token-auth-file", "", "CSV `file` of static tokens, one per line: token,user,uid,\"group,group\"")
	fs.BoolVar(&cfg.AnonymousAuth, "anonymous-auth", true, "authenticate requests without credentials as system:anonymous")
}
