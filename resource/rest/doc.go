// Package rest serves resources: one file per verb, over any [resource.Store]
// and any [Codec]. A server hands it a table of [Kind]s; a request reaches it
// as a [resource.Action].
//
// Runs in: gateway, core, crd.
package rest
