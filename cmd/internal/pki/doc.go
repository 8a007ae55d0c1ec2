// Package pki makes and keeps the keys and certificates of one installation:
// three authorities, the leaves that the processes show each other, the
// service-account signing key and the administrator's kubeconfig.
//
// Decisions:
//
//   - Three authorities, because they answer three questions: is this the
//     gateway (serving), who is this user (client), is this the gateway
//     speaking for a user (front-proxy). One authority for two of them would
//     let an ordinary user's certificate pass for the front proxy.
//   - ECDSA P-256 everywhere: a whole set is made in a few milliseconds, and
//     every client of the last ten years takes it.
//   - [Ensure] is idempotent. What is there and good is used; a leaf is made
//     again when it nears its end, when its authority changed, or when it lacks
//     a name that is now asked for. An authority is never replaced silently: if
//     it cannot be read, Ensure fails and says which file.
//   - [Issue] is for processes on machines of their own: what it writes is all
//     that one of them needs, and never an authority's key. It replaces nothing
//     unless told to, because the key that is there may be in use.
//   - Every file is written to a temporary name and renamed, mode 0600, so that
//     a reader never sees half a key and a crash leaves the old one.
//
// Runs in: portico up, portico certs.
package pki
