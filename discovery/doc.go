// Package discovery makes and serves the documents under /api and /apis, in the legacy form and in
// the aggregated form (apidiscovery.k8s.io/v2).
//
// A server describes each group/version as a [GroupVersion]: a backend from its table of kinds
// ([FromKinds]), the gateway from the discovery of its servers (package sources). [Build] makes
// an immutable [Snapshot] in which every document is encoded once. [NewHandler] serves the
// [Current] snapshot from memory.
//
// Both forms of a group/version are kept: the aggregated form has no storageVersionHash. Each is
// derived from the other for a server that has only one.
//
// Runs in: gateway, core, crd.
package discovery
