// Package authentication makes the Authenticator of the gateway from its configuration.
//
// [New] puts the authenticators of resource/authn into kube-apiserver's order: front proxies,
// client certificates, bearer tokens, the anonymous user. Bearer tokens are those of a file, then
// those of service accounts, then bootstrap tokens. An invalid credential is refused, and is never the anonymous user.
//
// Runs in: gateway.
package authentication
