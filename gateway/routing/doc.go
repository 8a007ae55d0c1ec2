// Package routing decides where requests go. It follows what is registered and the state
// of servers, and publishes immutable snapshots.
//
//   - controller.go is the only writer of the route table (package gateway/proxy), of the
//     discovery documents, of the index of OpenAPI documents (openapi.go), and of the
//     conditions of APIServices and Backends. Its inputs are APIServices, Backends,
//     Services, EndpointSlices and the verdicts of the availability checker; on any change
//     it computes everything anew, bursts coalesced. published.go has the accessors.
//   - effectivebackend.go joins the gateway's flags with the stored Backends.
//     backendstate.go makes a server of each, restserver.go of those of REST servers, and
//     resolve.go decides the server of each APIService, with services.go for those that name
//     a Service. merge.go collects the results.
//   - server.go has one server behind the gateway: the connections to it (package
//     gateway/proxy) and its discovery. A server is reused across computations by identity
//     and closed when no Backend or APIService describes it. checks.go defines its
//     availability checks, unlisted.go those of group/versions that it does not list, and
//     stream.go follows its discovery. stable.go makes the texts of errors comparable.
//   - saved.go has the documents that are restored after a restart (package
//     gateway/lastgood).
//
// The types, each made of the one before: a Backend is a server of the gateway's flags, a
// StaticBackend is that with its files read, an EffectiveBackend is that joined with the
// stored Backend, or the stored Backend alone, and a BackendState is an EffectiveBackend with
// its Server.
//
// An APIService may name a group/version that the server of its Backend does not list. It
// is available if a check of its own finds the group/version (unlisted.go), since the
// server answering is no proof of that. Discovery shows it once its document was read,
// right after that check passes.
//
// No request waits for a server: checks and streams run in goroutines of their own, and the
// last answer stands meanwhile. Of the gateway's packages it imports proxy, upstream and
// lastgood.
//
// Runs in: gateway.
package routing
