// Package authn authenticates requests.
//
// An [Authenticator] reads credentials and returns a [resource.User]: client certificates,
// bearer tokens (a static file, service accounts, bootstrap tokens), the identity headers of a trusted front
// proxy, or the anonymous user ([Anonymous]). [Union] calls authenticators in order.
// [Signer] issues service-account tokens, and [IssuerDiscovery] publishes the keys that verify
// them.
//
// Decisions:
//
//   - An invalid credential is an error, never the anonymous user: a client that presents a
//     token must learn that it is invalid.
//   - Results are cached. Verifying a certificate chain or a signature takes tens of
//     microseconds, more than the rest of a short request. Caches are bounded and keyed by a
//     digest of the credential; an entry ends when the credential expires, the CAs change, or
//     an object that a token depends on does ([ServiceAccountTokens.Changed]).
//   - Authenticators do not change the request, so they can be called twice; resource/serve
//     removes the credentials afterwards ([StripCredentials]).
//   - Files (CAs, certificates, keys, tokens) are checked for changes when they are used, at
//     most every second, without a goroutine. If a file cannot be read, its previous
//     content stays in use.
//   - On a unix socket the identity is the uid of the peer, which the kernel reports and
//     resource/serve puts into the context of the connection.
//
// Users returned by authenticators are shared between requests and must not be changed.
//
// Runs in: gateway, core, crd.
package authn
