// Package pki makes and renews the keys and certificates of an installation: three
// authorities, the certificates of the processes, the service-account signing key and
// the administrator's kubeconfig.
//
// Decisions:
//
//   - Three authorities for three statements: this is the gateway (serving), this is
//     a user (client), this is a gateway that names users (front-proxy). With one
//     authority for two of them a user's certificate could pass for a front proxy.
//   - ECDSA P-256 everywhere: a whole set takes a few milliseconds, and every client
//     of the last ten years supports it.
//   - [Ensure] is idempotent. Valid files are kept; a certificate is made again when
//     it nears its end, when its authority changed, or when it lacks a name. An
//     authority is never replaced: if it cannot be read, Ensure fails and names the
//     file.
//   - [Issue] writes all that a process on another machine needs, and never an
//     authority's key. It replaces files only if told to, because they may be in use.
//   - Files are written under a temporary name and renamed, mode 0600, so that a
//     reader never sees half a key and a crash leaves the old one.
//
// Runs in: portico up, portico certs.
package pki
