// Package resource is the page of nouns that the whole of Portico speaks.
//
// Everything the three processes serve is a resource: it has an [Info] (what
// it is called and where it is stored), its instances are [Object]s (a small
// header and the bytes a client reads), and it is kept in a [Store] (one
// contract with several implementations: etcd, HTTP client, watch cache, memory). A
// [Feed] is a range of storage at one revision, then its changes. A parsed request is an
// [Action]: user, verb, resource.
//
// Decisions:
//
//   - Bytes first. An Object is never decoded on the serving path. Its header
//     holds what selectors, garbage collection and draining need; the bytes are
//     what a client reads, resourceVersion included.
//   - Compare-and-swap is inside [Store.Update]; no other code retries.
//   - One error type crosses every boundary: k8s.io/apimachinery's StatusError,
//     made by the constructors of errors.go or of apimachinery itself.
//
// Nothing here imports anything of Portico.
//
// Runs in: gateway, core, crd.
package resource
