// Package tracing records OpenTelemetry spans of requests and propagates traces in the W3C
// header traceparent.
//
// Decisions:
//
//   - The first server that traces decides whether a request is sampled, and the others
//     follow, so a trace is complete or absent. The decision against sampling is
//     propagated too; otherwise servers behind would begin traces of their own.
//   - Clients do not decide, as with kube-apiserver. If the client is trusted, its
//     traceparent is the parent of the span; otherwise the span links to it.
//   - A request that is not sampled makes no span, only the header: the random draw
//     precedes OpenTelemetry.
//   - Calls to etcd are recorded when they are over ([Stored]), so they need no hooks and
//     cost nothing without a trace. The webhook engines record spans of their own.
//   - The configuration is the file of kube-apiserver's --tracing-config-file, with its
//     defaults: OTLP over gRPC to localhost:4317, without TLS, and only requests sampled
//     that a client has begun to trace.
//
// Runs in: gateway, core, crd.
package tracing
