// Package client has a client of API servers: single requests, and a [resource.Reader] over
// HTTP, for what a process reads from another one. It also has the transports for that.
//
// Decisions:
//
//   - Objects are JSON, in the first of the resource's versions. apiVersion and kind are
//     added to items of lists that lack them.
//   - Errors are StatusErrors; a server that cannot be reached is a 503. errors.Is finds the
//     cause.
//   - Responses are bounded. Lists and watches are read object by object, each bounded.
//
// Unlike client-go it returns objects as bytes, and neither waits nor repeats requests by
// itself: loop.Follow does.
//
// Runs in: gateway, core, crd.
package client
