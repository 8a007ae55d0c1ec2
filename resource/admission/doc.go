// Package admission decides about writes before they are stored: the lifecycle
// of namespaces, admission webhooks and admission policies. It implements the
// needs that package rest declares.
//
// Runs in: core, crd, gateway.
//
// Decisions:
//   - Webhooks are called and policies evaluated by the engines of
//     k8s.io/apiserver, so that every message and every rule of matching is the
//     one that clients know. What is ours is where the engines get their
//     configurations from, and how the objects of package rest look to them.
//   - Configurations are followed by loop.Follow, one list and watch per kind,
//     and nothing waits for that when a process starts. While they were never
//     read, nobody can tell what a write must pass: a write then waits
//     EngineConfig.FirstRead and is answered 503 with Retry-After. Once read,
//     the last known state counts for as long as it cannot be read again: an
//     API that is down must not stop the writes to others. A process may keep that
//     state over a restart (Configurations, Restore).
//   - Engines are made with the first configuration that needs them. A process
//     without webhooks and policies compiles no CEL environment, follows no
//     namespaces, and asks nobody about a write.
//   - A policy counts as soon as it is read, where upstream looks for changes
//     once a second: the engines get their policies from a source of our own.
//   - Objects are shown to the engines as they are where the versions agree, and
//     otherwise through the kind's Codec. What a webhook or policy made of an
//     object comes back through the Codec too, and so is pruned and defaulted
//     like a request.
//   - What the engines count themselves is theirs, in upstream's registry, and is
//     shown from there (EngineMetrics); the phases and who is asked in them are
//     timed here, with histograms that are looked up once.
//   - Audit annotations of webhooks and policies go to the audit event of the
//     request, where it has one, in upstream's own way.
package admission
