// Package kinds is the core server's table of kinds: one row for each resource that kube-apiserver serves, in the file of
// its group. A row has the names of the resource, the strategies of kube-apiserver for it, and what is special. To add a
// resource, copy a row.
//
// Decisions:
//
//   - Defaults, rules, messages, conversions and tables are those of kube-apiserver: k8s.io/kubernetes is called (strategy.go
//     and table.go adapt it), not copied. Its versions follow Kubernetes (docs/releasing.md).
//   - The hub form is the Go type of the storage version, as everywhere in Portico, so that reads, controllers and admission
//     know one form. Strategies take the internal version of a group; a write is converted, which costs little, because the
//     types share most of their memory.
//   - What kube-apiserver does elsewhere than in strategies is in files of its own: the addresses of Services (service.go),
//     the two groups of events (event.go), subresources that are calls (virtual.go), scale (scale.go).
//   - Whatever a write needs besides its own object (cluster IPs and ports of a Service, a token) is a function in [Config],
//     so this package has no state of its own, no clients and no goroutines. Scheme, feature gates and capabilities are global
//     in k8s.io/kubernetes.
//   - Input of users costs bounded memory and time also where strategies compare each part with each other one: warnings.go
//     and maxComparedErrors.
//
// Runs in: core.
package kinds
