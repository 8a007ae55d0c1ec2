// Package rest describes what a server serves: a [Kind] with its [Strategy], [Subresource]s
// and [Codec], and the [Resource] that adds its store. Package handlers implements the
// verbs on it, as k8s.io/apiserver's endpoints/handlers does on registry/rest.
//
// Runs in: gateway, core, crd.
package rest
