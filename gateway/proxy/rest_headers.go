package proxy

import (
	"net/http"
	"slices"
	"strings"

	"portico/resource/authn"
)

// A Kubernetes API server reads the user from X-Remote-* only. A REST backend may have
// been made for another proxy, and read the user, the client's address or its
// certificate from the headers of that: common ones are removed from requests.
// X-Forwarded-For, -Host, -Proto and -Uri are set anew, from what the gateway knows.

// claims are prefixes of headers, folded (authn.FoldHeaderName), with which proxies name
// users, clients and their certificates.
var claims = []string{
	"x-forwarded-", "remote-", "x-authenticated-", "x-webauth-", "x-auth-request-", "x-authentik-", "x-goog-authenticated-", "x-goog-iap-",
	"x-amzn-oidc-", "x-ms-client-principal", "x-ms-token-", "cf-access-", "x-pomerium-", "tailscale-user-",
	"x-ssl-", "ssl-client", "x-client-cert", "x-client-dn", "x-client-verify", "x-client-subject", "client-cert", "x-tls-client-", "x-arr-clientcert",
	"x-amzn-mtls-", "x-proxy-user", "x-proxy-remote-user",
}

// claimed are more of them, as whole names. CGI programs read Proxy as HTTP_PROXY, and
// send their own requests there.
var claimed = []string{
	"forwarded", "x-real-ip", "x-client-ip", "client-ip", "true-client-ip", "x-cluster-client-ip", "cf-connecting-ip", "cf-connecting-ipv6",
	"fastly-client-ip", "fly-client-ip", "x-envoy-external-address", "x-user", "x-user-id", "x-username", "x-user-name", "x-user-email", "x-email",
	"x-groups", "x-user-groups", "x-user-roles", "x-roles", "x-auth-user", "x-auth-username", "x-auth-email", "x-auth-groups", "x-auth-roles",
	"auth-user", "x-consumer-id", "x-consumer-username", "x-consumer-custom-id", "x-credential-username", "x-credential-identifier",
	"x-anonymous-consumer", "x-userinfo", "proxy",
}

// stripForREST removes from a client's header what a REST backend could read as a
// proxy's claim about the client, and, as nginx and Apache do, every name with other
// characters than letters, digits and dashes, because servers fold it into another name.
func stripForREST(h http.Header) {
	for name := range h {
		folded := authn.FoldHeaderName(name)
		if folded != strings.ToLower(name) || slices.Contains(claimed, folded) ||
			slices.ContainsFunc(claims, func(prefix string) bool { return strings.HasPrefix(folded, prefix) }) {
			delete(h, name)
		}
	}
}
