// Package routing decides where requests go. It takes news in, and publishes
// snapshots that everybody else only reads.
//
//   - sync.go is the only writer of the route table (package gateway/proxy), of the
//     discovery documents, of the index of OpenAPI documents (openapi.go), and of what
//     is to be said of APIServices and Backends. It takes news (APIServices, Backends,
//     Services, EndpointSlices, verdicts of the availability checker) and rebuilds all
//     of that, bursts coalesced; published.go is how others read it.
//   - described.go puts together what this gateway is configured with and what
//     is stored of Backends; standing.go makes servers of them, restserver.go of those
//     that are plain REST servers, and place.go sends each APIService to one, by way of
//     services.go if it names a Service. merge.go collects what comes of it.
//   - server.go are live things: one server behind the gateway, the way to it
//     (package gateway/proxy) and what it says it serves, reused by identity across
//     rebuilds, retired when no Backend or APIService describes it. checks.go has it
//     checked, with unlisted.go for what it may have and does not list, and stream.go
//     follows what it tells of itself. stable.go keeps the errors of checks from
//     reading otherwise each time.
//   - kept.go and restore.go are what of all this outlives a gateway (package
//     gateway/lastgood).
//
// The types, in the order that one is made of the other: a Backend is what the gateway's
// flags say of a server, Configured is what was read for it (files, certificates),
// Described is that with what is stored of the Backend, or the latter alone, and a
// Standing is a Described with the Server that was made of it.
//
// What an APIService names and its Backend does not list is judged by a check of its
// own (unlisted.go) for as long as the server does not list it: that the server
// answers does not say that it has the group/version. Discovery shows it once its own
// document was read, which is done at once when that check becomes good. What the
// server lists is there while the server is.
//
// No route waits for a server: the checker and the streams ask, in goroutines of
// their own, and what was said last stands meanwhile.
// Of the gateway's packages it imports proxy, upstream and lastgood.
//
// Runs in: gateway.
package routing
