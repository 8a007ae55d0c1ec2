// Package tracing has requests leave spans of OpenTelemetry where they pass, and
// hands the trace on to the next server in the W3C header traceparent.
//
// Decisions that shaped it:
//
//   - Whether a request is sampled is decided once, where it first meets a
//     server that traces, and the others follow: a trace is whole or is not.
//     Who is not sampled sends that on as well, so that the servers behind do not
//     begin traces of their own in the middle.
//   - Clients do not decide it, as with kube-apiserver: anybody could have every
//     request of theirs sampled. What a client says is the parent of the span if
//     its word counts (the owner's to say), and a link from it otherwise.
//   - A request that is not sampled makes no span, only the header: the draw
//     comes before OpenTelemetry is asked.
//   - What a server does for a request is told when it is over ([Stored]), so
//     that who does it needs no hooks before and after, and pays nothing without
//     a trace. The webhook engines leave spans by themselves.
//   - The configuration is the file of kube-apiserver's --tracing-config-file,
//     with its defaults: OTLP over gRPC to localhost:4317, without TLS, and
//     nothing sampled but what others have begun.
//
// Runs in: gateway, core, crd.
package tracing
