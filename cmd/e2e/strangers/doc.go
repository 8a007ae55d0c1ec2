// Package strangers runs programs and test suites of other projects against installations:
// Helm, kwok, operators, kube-controller-manager, an OpenID provider, the suites of
// controller-runtime and apiextensions-apiserver, the tests of the CEL rules of Gateway API and
// external-snapshotter, and the end-to-end and integration tests of kubernetes. Each is built from its Go module; none of its
// source is changed, but for addresses to listen on, and for how the tests of apiextensions-apiserver and kubernetes
// start their servers.
//
// Runs in: .ci/long strangers, and the tests of kubernetes in .ci/long e2e and .ci/long integration.
package strangers
