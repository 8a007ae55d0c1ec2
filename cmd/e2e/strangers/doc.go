// Package strangers runs programs and test suites of other projects against installations:
// Helm, kwok, operators, kube-controller-manager, an OpenID provider, the suites of
// controller-runtime and apiextensions-apiserver, and those of the rules in CEL of Gateway API and
// external-snapshotter. Each is built from its Go module; none of its source is changed, but for
// addresses to listen on, and for how apiextensions-apiserver's tests start their server.
//
// Runs in: .ci/long strangers.
package strangers
