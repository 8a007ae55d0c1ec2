// Package gateway is the one door: it authenticates, impersonates, limits and
// authorizes every request once, answers the groups it owns from etcd, serves
// discovery from memory, and proxies every other group/version to the server
// behind it.
//
// How it hangs together:
//
//   - table.go is an immutable snapshot: group/version -> route. Looking up a
//     route is one atomic load.
//   - sync.go is the only writer of that table and of the discovery snapshot.
//     It takes news (APIServices, Backends, Services, EndpointSlices, verdicts
//     of the availability checker) and rebuilds both, bursts coalesced.
//   - described.go puts together what this gateway is configured with and what
//     is stored of Backends; standing.go makes servers of them, and place.go
//     sends each APIService to one.
//   - register.go stores the automanaged APIServices, of which claims.go says
//     whose each is; introduce.go stores the Backends that the gateway starts
//     with, and statuswriter.go the status of all. Of several gateways the one
//     elected in writer.go writes.
//   - proxied.go are live things: one upstream (package gateway/upstream, the
//     data path) per server with its reverse proxies, reused by identity across
//     rebuilds, retired when no route names it.
//   - unfit.go and upgrade.go turn away what a server might read as another
//     request than was authorized.
//   - proxy.go moves bytes. Nothing in it knows which server is special.
//   - plain.go asks REST servers as they want to be asked, and plain_answer.go
//     says what becomes of their redirects and streams.
//   - openapi.go serves the index of OpenAPI documents from memory; openapi_kept.go
//     has the documents, from their servers or from what was kept of them.
//   - relay.go moves those of watches. Profiles showed the size of its pieces to
//     be what a delivery costs most by: with 4 KiB, events that had come up
//     together were sent one by one, and a delivery through the gateway cost
//     about twice the processor time that it does with 32 KiB (BenchmarkWatch).
//   - hop.go follows one request to its server and back, for traffic.go (metrics
//     by APIService, server and endpoint), the access log, traces, and clients
//     that may know, as signed.go tells them of answers that are the gateway's own;
//     upstreammetrics.go shows the state of endpoints, and
//     explain.go answers where a request would go.
//
// The gateway is ready when etcd answers. A server behind it that is down
// costs its own groups and nothing else: neither start-up nor any request for
// discovery opens or awaits a connection to one.
//
// Runs in: gateway.
package gateway
