// Package authn finds out who makes a request.
//
// An [Authenticator] reads credentials and answers with a [resource.User]:
// client certificates, bearer tokens (a static file, service accounts), the
// identity headers of a trusted front proxy, or nobody at all ([Anonymous]).
// [Union] puts them in order. Beside them stand the two ends of what Portico
// itself issues: [Signer] makes service-account tokens and [IssuerDiscovery]
// publishes the keys that verify them.
//
// Decisions that shaped it:
//
//   - A wrong credential is an error, never anonymity. A client that presents
//     a token expects to be somebody; answering it as nobody hides the mistake.
//   - Verification is remembered, not the connection. Checking a certificate
//     chain or a signature costs tens of microseconds, more than all the rest
//     of a short request; both are kept in bounded caches keyed by a digest of
//     the credential, and never beyond its end or a change of the authorities.
//   - Authenticators strip nothing from the request, so they can be asked
//     twice; resource/serve removes the credentials once the answer is known
//     ([StripCredentials]).
//   - Files (authorities, certificates, keys, tokens) are looked at again by
//     those who use them, every ten seconds at most: no goroutine, no signal.
//     A file that cannot be read leaves what was there in force.
//   - Trust on a unix socket is the kernel's word on the peer's uid, put on the
//     connection's context by resource/serve; never the position in a network.
//
// Users that authenticators return are shared between requests: whoever needs
// another one makes a copy.
//
// Runs in: gateway, core, crd.
package authn
