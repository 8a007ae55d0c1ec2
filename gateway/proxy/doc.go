// Package proxy is the way of a request from the gateway to the server that its
// group/version is routed to, and of the answer back. Nothing in it knows which
// server is special.
//
//   - table.go is an immutable snapshot: group/version -> route. Looking up a
//     route is one atomic load. Package gateway/routing makes it.
//   - send.go sends a request along its route, in the order that its checks are
//     written in.
//   - unfit.go and upgrade.go turn away what a server might read as another
//     request than was authorized.
//   - proxy.go moves bytes: three reverse proxies for each server, which way.go
//     keeps together with the ways there (package gateway/upstream).
//   - relay.go moves those of watches. Profiles showed the size of its pieces to
//     be what a delivery costs most by: with 4 KiB, events that had come up
//     together were sent one by one, and a delivery through the gateway cost
//     about twice the processor time that it does with 32 KiB (BenchmarkWatch).
//   - plain.go asks REST servers as they want to be asked, and plain_answer.go
//     says what becomes of their redirects and streams.
//   - trailer.go has what a server may say, and where.
//   - hop.go follows one request to its server and back, for traffic.go (metrics
//     by APIService, server and endpoint), the access log, traces, and clients
//     that may know, as signed.go tells them of answers that are the gateway's own;
//     upstreammetrics.go shows the state of endpoints.
//
// Of the gateway's packages it imports upstream only.
//
// Runs in: gateway.
package proxy
