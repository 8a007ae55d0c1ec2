// Package backend is the kind Backend (gateway.portico.dev/v1alpha1): the endpoints of
// a server behind the gateway, how they are trusted, which groups are registered, and
// the policy of requests. An APIService registers a group/version; a Backend is the
// server of it.
//
// The package has the types, defaults, validation and columns; package gateway/routing
// uses them. The stored object is what was written: policy.go applies all defaults when
// they are used. Every field can be changed and takes effect at once.
//
// The OpenAPI definitions are generated from types.go: go -C cmd/tools test ./generated -update
//
// Runs in: gateway, and the commands that write Backends.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.portico.gateway.v1alpha1
package backend
