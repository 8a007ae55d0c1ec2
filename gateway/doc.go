// Package gateway is the one door: it authenticates, impersonates, limits and
// authorizes every request once, answers the groups it owns from etcd, serves
// discovery from memory, and proxies every other group/version to the server
// behind it.
//
// What it does is in packages of their own, below this one:
//
//   - gateway/access says what clients may, gateway/flow how much at a time.
//   - gateway/routing follows what is registered and the servers behind, and makes
//     routes, discovery and the index of OpenAPI documents of it.
//   - gateway/proxy sends requests along the routes, by the connections of
//     gateway/upstream.
//   - gateway/openapi answers requests for OpenAPI documents.
//   - gateway/registration writes what was found out to APIServices and Backends, if
//     this gateway is the one elected (writer.go).
//   - gateway/lastgood keeps over a restart what lastgood.go collects for it.
//
// Imports go one way: upstream, lastgood < proxy < routing < registration, openapi <
// gateway.
//
// Here they are put together: assemble.go makes them, in order, and gateway.go runs
// them. Besides:
//
//   - routes.go says who answers which path.
//   - identity.go knows clients by their credentials; core.go asks the core server for
//     what is not the gateway's own: Services, service accounts, Secrets. publish.go
//     tells it whom registered servers are to trust.
//   - follow.go hands stored APIServices and Backends to routing.
//   - explain.go answers where a request would go.
//
// The gateway is ready when etcd answers. A server behind it that is down
// costs its own groups and nothing else: neither start-up nor any request for
// discovery opens or awaits a connection to one.
//
// Runs in: gateway.
package gateway
