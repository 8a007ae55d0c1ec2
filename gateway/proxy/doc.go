// Package proxy sends requests from the gateway to the server that their group/version
// is routed to, and the answers back. No server is special to it.
//
//   - send.go: the table, an immutable snapshot of group/version to route that package
//     gateway/routing makes; sends a request along its route, in the order of its checks,
//     and refuses what a server could read as another request than was authorized.
//     upgrade.go: requests that leave HTTP.
//   - proxy.go: three reverse proxies for each server, beside its endpoints (package
//     gateway/upstream).
//   - relay.go: copies the answers of long-running requests, in pieces of 32 KiB: with
//     4 KiB, events that come together are sent one by one, and a delivery costs about
//     twice the processor time.
//   - rest.go: how requests are sent to REST servers; rest_override.go: method overrides;
//     rest_answer.go: redirects and streams of events.
//   - trailer.go: which headers a server may send, and where.
//   - traffic.go: metrics by APIService, server and endpoint; upstreammetrics.go: metrics of
//     the endpoints' state; debug.go: the debug headers. Like the access log and traces they
//     show what send.go records of a request.
//
// Of the gateway's packages it imports gateway/upstream only.
//
// Runs in: gateway.
package proxy
