// Package controllers has the controllers of kube-controller-manager that a control plane
// without nodes needs, under the names of its flag --controllers.
//
// A [Controller] is a row of [All] and a file that is named after it. It reads through the
// informers of [Env] and writes through its clients, which are clients of the gateway: objects
// of other servers are within its reach, and every request is authorized and admitted like
// those of others. [Run] runs the selected ones, in one core server at a time.
//
// The rows without Run are controllers of package core: backends/core/drain.go (namespaces),
// backends/core/defaults.go (service accounts, root certificates) and
// backends/core/garbagecollector.go. The first two work on the stores of their server and run in
// every one. Controllers of workloads and nodes are not here: kube-controller-manager has them.
//
// Runs in: core.
package controllers
