// Package admission decides about writes before they are stored: namespace life cycle,
// admission webhooks and admission policies. It implements the interfaces of package
// rest.
//
// Runs in: core, crd, gateway.
//
// Decisions:
//   - The engines of k8s.io/apiserver call webhooks and evaluate policies, so that
//     messages and matching are those that clients know. This package gives them
//     their configurations and converts the objects of package rest.
//   - Configurations are followed by loop.Follow, one list and watch per kind, and a
//     process does not wait for them when it starts. Before they were read a write
//     waits EngineConfig.FirstRead and is answered 503 with Retry-After. Afterwards
//     the last state applies while it cannot be read again: a server that is down
//     must not stop writes to others. A process may keep that state over a restart
//     (Configurations, Restore).
//   - Engines are made with the first configuration that needs them. A process
//     without webhooks and policies compiles no CEL environment and follows no
//     namespaces.
//   - A policy applies as soon as it is read (upstream polls once a second): the
//     engines get policies from a source in this package.
//   - Objects are passed to the engines unchanged where the versions agree, otherwise
//     through the kind's Codec. The result of a webhook or policy comes back through
//     the Codec and is pruned and defaulted like a request.
//   - Metrics of the engines are shown from upstream's registry (EngineMetrics); the
//     phases and plugins are timed here.
//   - Audit annotations of webhooks and policies go to the audit event of the request
//     by upstream's context.
package admission
