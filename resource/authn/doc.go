// Package authn authenticates requests.
//
// An [Authenticator] reads credentials and returns a [resource.User]: client
// certificates, bearer tokens (a static file, service accounts), the identity headers
// of a trusted front proxy, or the anonymous user ([Anonymous]). [Union] calls them in
// order. [Signer] makes service-account tokens, [IssuerDiscovery] publishes the keys
// that verify them.
//
// Decisions that shaped it:
//
//   - An invalid credential is an error and never anonymous: a client that
//     presents a token expects to be a user, and an anonymous answer would hide
//     the mistake.
//   - Results of verification are cached, not connections. Verifying a
//     certificate chain or a signature takes tens of microseconds, more than the
//     rest of a short request. The caches are bounded and keyed by a digest of the
//     credential; an entry ends with the credential or with a change of the CAs.
//   - Authenticators remove nothing from the request, so that they can be called
//     twice; resource/serve removes the credentials afterwards
//     ([StripCredentials]).
//   - Files (CAs, certificates, keys, tokens) are checked for changes when they are
//     used, every ten seconds at most: no goroutine, no signal. A file that cannot
//     be read leaves its last content in force.
//   - On a unix socket the identity is the uid of the peer, which the kernel
//     reports and resource/serve puts on the context of the connection.
//
// Users that authenticators return are shared between requests and must not be
// changed.
//
// Runs in: gateway, core, crd.
package authn
