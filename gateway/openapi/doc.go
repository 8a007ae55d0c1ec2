// Package openapi serves OpenAPI documents: those of the gateway and of the servers behind it.
//
//   - documents.go routes requests by the index, which package gateway/routing keeps in memory, and
//     fetches documents of servers at the first request.
//   - v2.go serves OpenAPI v2. It is made in the background when it is requested: v2_convert.go and
//     v2_schema.go convert the v3 documents one at a time, and v2_parts.go merges them with
//     k8s.io/kube-openapi.
//   - broken.go reports invalid documents. One does not affect others.
//
// Of the packages of the gateway it imports routing and proxy.
//
// Runs in: gateway.
package openapi
