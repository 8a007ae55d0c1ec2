// Package upstream compares parts of Portico that repeat parts of kube-apiserver and kube-controller-manager with them:
// the node authorizer, and the controllers of Endpoints and EndpointSlices.
//
// Runs in: tests.
package upstream
