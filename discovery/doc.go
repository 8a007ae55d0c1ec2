// Package discovery is what a server says it serves: the documents under
// /api and /apis, in the legacy form and in the aggregated one
// (apidiscovery.k8s.io/v2), and the HTTP door to them.
//
// A server describes each group/version as a [GroupVersion]: a backend from
// its table of kinds ([FromKinds]), the gateway from what its backends say
// (package sources). [Build] makes an immutable [Snapshot] of all of them,
// every document encoded once; [NewHandler] serves whatever snapshot is
// current, so that no request for discovery ever waits for anybody.
//
// Both forms of a group/version are kept: the aggregated form carries no
// storageVersionHash, the legacy one nests no subresources. Each can be derived
// from the other where a server offers only one.
//
// Runs in: gateway, core, crd.
package discovery
