// Package strangers runs programs and test suites of other projects against installations:
// Helm, kwok, operators, kube-controller-manager, an OpenID provider, the suites of
// controller-runtime and apiextensions-apiserver. Each is built from its Go module; none of its source is changed, but
// for addresses to listen on, and for how apiextensions-apiserver's tests start their server.
//
// Runs in: .ci/long strangers.
package strangers
