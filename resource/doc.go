// Package resource has the types that all of Portico shares.
//
// Everything that the three processes serve is a resource: it has an [Info] (its names and
// its storage path), [Object]s (a small header and encoded bytes), and a [Store] (a contract
// with several implementations: etcd, HTTP client, watch cache, memory). A [Feed] is a range
// of storage at one revision, then its changes. A parsed request is an [Action]: user, verb,
// resource.
//
// Decisions:
//
//   - An Object is not decoded to be served. Its header has the fields for selectors and
//     garbage collection; its bytes are sent to clients, resourceVersion included.
//   - Only [Store.Update] compares, swaps and retries.
//   - Errors between packages are StatusErrors of k8s.io/apimachinery, from the
//     constructors in errors.go or its own.
//
// It imports no other package of Portico but jsonscan.
//
// Runs in: gateway, core, crd.
package resource
