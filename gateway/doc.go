// Package gateway is the endpoint that clients connect to. It authenticates, impersonates,
// limits and authorizes every request once, answers the groups that it owns from etcd,
// serves discovery from memory, and proxies every other group/version to its server.
//
// Its packages:
//
//   - gateway/access authorizes; gateway/flow serves the flow control kinds.
//   - gateway/routing follows registrations and servers, and makes routes, discovery and
//     the index of OpenAPI documents.
//   - gateway/proxy sends requests along the routes, over the connections of
//     gateway/upstream.
//   - gateway/openapi serves OpenAPI.
//   - gateway/registration writes the state of servers to APIServices and Backends, if this
//     gateway is the elected one.
//   - gateway/lastgood keeps what lastgood.go collects for a restart while etcd is away.
//   - gateway/accesslog writes a line for every request.
//
// Imports go one way: upstream, lastgood < proxy < routing < registration, openapi <
// gateway.
//
// In this package:
//
//   - assemble.go makes the parts in order, and gateway.go runs them.
//   - routes.go has the routes of paths.
//   - identity.go refuses loops and authorizes further actions; core.go reads from the core server
//     what the gateway does not store: Services, service accounts, Secrets. publish.go publishes the CAs that
//     registered servers trust.
//   - explain.go answers where a request would go.
//
// The gateway is ready when etcd answers. A server that is down affects its own groups only:
// neither start-up nor a request for discovery waits for a connection to a server.
//
// Runs in: gateway.
package gateway
