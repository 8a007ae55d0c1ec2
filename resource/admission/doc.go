// Package admission decides about writes before they are stored: namespace life cycle,
// admission webhooks and admission policies. It implements the interfaces of package rest.
//
// Runs in: core, crd, gateway.
//
// Decisions:
//   - The engines of k8s.io/apiserver call webhooks and evaluate policies, so matching and
//     messages are those that clients know. This package gives them their configurations and
//     converts the objects of package rest.
//   - Configurations are followed by loop.Follow, one list and watch per kind, after the
//     start. Until they were read, a write waits EngineConfig.FirstRead and is rejected with
//     503 and Retry-After. Later the last state applies while they cannot be read: a server
//     that is down must not stop writes to others. A process may keep that state over a
//     restart (Configurations, Restore).
//   - Upstream's policy source compiles changed policies once a second, so a policy applies
//     about a second after it is written.
//   - Webhook engines and CEL environments are made with the first configuration, and
//     namespaces are followed from then on.
//   - Objects are passed to the engines unchanged where the versions agree, otherwise
//     converted by the kind's Codec. The result of a webhook or policy is decoded by the
//     Codec, pruned and defaulted like a request.
//   - Metrics are upstream's (EngineMetrics).
//   - Audit annotations of webhooks and policies are added to the audit event of the request
//     through upstream's audit context. The core and the CRD server return them to the gateway
//     (package audit).
package admission
