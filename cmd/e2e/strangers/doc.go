// Package strangers runs programs and test suites of other projects against installations:
// Helm, kwok, operators, kube-controller-manager, controller-runtime's suite. Each is built
// from its Go module; none of its source is changed, but for addresses to listen on.
//
// Runs in: .ci/long strangers.
package strangers
