// Package apidocs answers requests for OpenAPI documents, the gateway's own and those
// of the servers behind it.
//
//   - documents.go answers for the index from memory, of which package
//     gateway/routing keeps who has what.
//   - kept.go has the documents, from their servers or from what was kept of them.
//   - broken.go tells which cannot be used. One that cannot costs no other.
//
// Of the gateway's packages it imports routing, proxy and lastgood.
//
// Runs in: gateway.
package apidocs
