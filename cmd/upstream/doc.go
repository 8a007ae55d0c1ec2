// Package upstream compares parts of Portico that repeat parts of kube-apiserver and kube-controller-manager with them:
// the authorizer of nodes and controllers.
//
// Runs in: tests.
package upstream
