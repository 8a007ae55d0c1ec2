package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	AddTokenIssuers(fs, cfg)
	AddTokens(fs, cfg)
}

// AddTokenIssuers adds the flags of tokens of other issuers and of anonymous requests, which are those of
// kube-apiserver.
func AddTokenIssuers(fs *pflag.FlagSet, cfg *authentication.Config) {
	fs.StringVar(&cfg.ConfigFile, "authentication-config", "", "`file` with the AuthenticationConfiguration (apiserver.config.k8s.io/v1), as for kube-apiserver: issuers of tokens, and anonymous requests (default: none)")
	o := &cfg.OIDC
	fs.StringVar(&o.IssuerURL, oidcPrefix+"issuer-url", "", "`URL` of the issuer of OpenID Connect tokens (default: none)")
	fs.StringVar(&o.ClientID, oidcPrefix+"client-id", "", "`audience` of the tokens")
	fs.StringVar(&o.CAFile, oidcPrefix+"ca-file", "", "PEM `file` of CAs for the certificate of the issuer (default: the system's)")
	fs.StringVar(&o.UsernameClaim, oidcPrefix+"username-claim", "sub", "`claim` of the user's name")
	fs.StringVar(&o.UsernamePrefix, oidcPrefix+"username-prefix", "", "`text` before the user's name; - is none (default: the issuer and #, or none for the claim email)")
	fs.StringVar(&o.GroupsClaim, oidcPrefix+"groups-claim", "", "`claim` of the user's groups (default: none)")
	fs.StringVar(&o.GroupsPrefix, oidcPrefix+"groups-prefix", "", "`text` before each group")
	fs.StringSliceVar(&o.SigningAlgs, oidcPrefix+"signing-algs", []string{"RS256"}, "comma-separated `algorithms` of signatures, of RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, PS512")
	fs.Var(claimsFlag{&o.RequiredClaims}, oidcPrefix+"required-claim", "a claim that tokens must have, as `name=value`. May be repeated")
	w := &cfg.Webhook
	fs.StringVar(&w.ConfigFile, webhookPrefix+"config-file", "", "kubeconfig `file` of the server to ask about bearer tokens (default: none)")
	fs.StringVar(&w.Version, webhookPrefix+"version", "v1beta1", "`version` of the TokenReview that the server is sent, v1 or v1beta1")
	fs.DurationVar(&w.CacheTTL, webhookPrefix+"cache-ttl", 2*time.Minute, "`time` to use an answer of the server again; 0 is not at all")
	fs.BoolVar(&cfg.AnonymousAuth, "anonymous-auth", true, "authenticate requests without credentials as system:anonymous")
}

// AddTokens adds those of service accounts, fixed and bootstrap tokens and front proxies that portico
// up passes on.
func AddTokens(fs *pflag.FlagSet, cfg *authentication.Config) {
	fs.StringSliceVar(&cfg.APIAudiences, "api-audiences", nil, "comma-separated `audiences`, one of which a token must have (default: the issuers)")
	fs.StringVar(&cfg.TokenAuthFile, "token-auth-file", "", "CSV `file` of static tokens, one per line: token,user,uid,\"group,group\"")
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

// Prefixes of the flags of an issuer, and of the webhook that is asked about tokens.
const (
	oidcPrefix    = "oidc-"
	webhookPrefix = "authentication-token-webhook-"
)

// issuerCompanions returns what the flags of AddTokenIssuers need beside them.
func issuerCompanions(name string) []companion {
	switch {
	case name == oidcPrefix+"issuer-url":
		return []companion{{name, []string{oidcPrefix + "client-id"}, "tokens for any audience are not accepted"}}
	case strings.HasPrefix(name, oidcPrefix):
		return []companion{{name, []string{oidcPrefix + "issuer-url"}, "there is no issuer"}}
	case strings.HasPrefix(name, webhookPrefix) && name != webhookPrefix+"config-file":
		return []companion{{name, []string{webhookPrefix + "config-file"}, "there is no webhook"}}
	}
	return nil
}

// checkIssuers refuses an issuer by flags beside a file of issuers.
func checkIssuers(fs *pflag.FlagSet, f *pflag.Flag) error {
	if file := fs.Lookup("authentication-config"); file != nil && file.Value.String() != "" && strings.HasPrefix(f.Name, oidcPrefix) {
		return fmt.Errorf("--%s: authentication-config file and oidc-* flags are mutually exclusive; move the issuer to %s", f.Name, file.Value)
	}
	return nil
}

// claimsFlag is a flag of name=value that may be repeated.
type claimsFlag struct{ claims *map[string]string }

// Set implements pflag.Value.
func (c claimsFlag) Set(text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found || name == "" {
		return fmt.Errorf("%q must have the form name=value", text)
	}
	if *c.claims == nil {
		*c.claims = map[string]string{}
	}
	(*c.claims)[name] = value
	return nil
}

// Type implements pflag.Value; the value of a configuration file is a list.
func (c claimsFlag) Type() string { return "stringArray" }

func (c claimsFlag) String() string { return strings.Join(c.GetSlice(), ",") }

// Append implements pflag.SliceValue.
func (c claimsFlag) Append(text string) error { return c.Set(text) }

// Replace implements pflag.SliceValue.
func (c claimsFlag) Replace(texts []string) error {
	*c.claims = nil
	for _, text := range texts {
		if err := c.Set(text); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice implements pflag.SliceValue.
func (c claimsFlag) GetSlice() (out []string) {
	if c.claims == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(*c.claims)) {
		out = append(out, name+"="+(*c.claims)[name])
	}
	return out
}
