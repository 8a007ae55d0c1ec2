package upgrade

import "k8s.io/apimachinery/pkg/runtime/schema"

// away is an API that is registered, and of which the server does not run.
var away = schema.GroupVersion{Group: "away.example.com", Version: "v1"}

const (
	// namespace has the objects that the tests use.
	namespace = "upgrade"
	// tokenRequested and tokenStored are Secrets with tokens of the service account robot: one that was requested, and one
	// without an end.
	tokenRequested, tokenStored = "requested", "stored"
)
