// Package gateway is the one door: it authenticates, impersonates, limits and
// authorizes every request once, answers the groups it owns from etcd, serves
// discovery from memory, and proxies every other group/version to the server
// behind it.
//
// How it hangs together:
//
//   - package gateway/routing follows what is registered and the servers behind, and
//     makes routes, discovery and the index of OpenAPI documents of it.
//   - package gateway/registration writes what was found out to APIServices and
//     Backends. Of several gateways the one elected in writer.go writes.
//   - package gateway/proxy sends requests along the routes.
//   - package gateway/apidocs answers for OpenAPI.
//   - explain.go answers where a request would go.
//
// The gateway is ready when etcd answers. A server behind it that is down
// costs its own groups and nothing else: neither start-up nor any request for
// discovery opens or awaits a connection to one.
//
// Runs in: gateway.
package gateway
