// Package openapi answers requests for OpenAPI documents, the gateway's own and those
// of the servers behind it.
//
//   - documents.go routes a request by the index, which package gateway/routing keeps in
//     memory; kept.go fetches documents of servers, each when it is first asked for.
//   - v2.go makes and serves OpenAPI v2, in the background, when it is asked for: of the
//     v3 documents, which v2_convert.go, v2_schema.go and v2_parameters.go convert one at a
//     time, and which k8s.io/kube-openapi merges (v2_parts.go) and encodes.
//   - broken.go reports documents that cannot be used. One costs no other.
//
// Of the gateway's packages it imports routing and proxy.
//
// Runs in: gateway.
package openapi
