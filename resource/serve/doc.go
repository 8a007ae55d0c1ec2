// Package serve makes a server of a handler: listeners, health, routes and an orderly
// shutdown.
//
// Its rooms:
//
//   - filter is the chain that every request passes, in the order of filter/chain.go.
//   - inflight counts connections and requests, for limits and for shutdown.
//   - metrics counts requests under kube-apiserver's names.
//   - socket listens on unix sockets.
//   - version describes the program.
//
// [NewRouter] has the routes of a server behind the gateway; the gateway's are in
// gateway/routes.go.
//
// Runs in: gateway, core, crd.
package serve
