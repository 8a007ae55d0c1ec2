// Package response negotiates, encodes, compresses and writes the bodies of HTTP responses,
// and errors as a Kubernetes Status. It does not depend on the kinds that a server has.
//
// Runs in: gateway, core, crd.
package response
