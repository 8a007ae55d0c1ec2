// Package backend is the kind Backend (gateway.portico.dev/v1alpha1): where a
// server behind the gateway is, how it is trusted, which of its groups are
// taken, and how requests are spread over its endpoints. It is to APIService
// what an upstream cluster is to a route in other gateways: an APIService says
// that a group/version is served, a Backend says by whom and how.
//
// The package knows the kind (types, defaults, validation, columns), not what
// the gateway does with it. Stored is what was written; everything that is left
// out is decided in one place, policy.go, when it is used, so that a better
// default reaches the Backends there are. Nothing is immutable: all that a
// Backend says can be changed, and takes effect at once.
//
// Runs in: gateway, and the commands that write Backends.
package backend
