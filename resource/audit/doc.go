// Package audit records requests: it evaluates the audit policy for every request, builds
// the events that the policy asks for, and sends them to a log file, a webhook, or both.
//
// Policies, levels, events, truncation, batches and metrics are those of
// k8s.io/apiserver, so programs that read the audit log of a kube-apiserver read this one.
// The content of events has another source: this process does not decode the bodies that
// it proxies.
//
// Decisions:
//
//   - Bodies are recorded as they pass (recording.go), if the policy asks for them, and
//     converted to JSON at the end of the request (object.go), so streaming and retries do
//     not change. At level Metadata only the body of an error is read, for its reason.
//     Streams are not recorded; a body in a format that cannot be read is named as unread.
//   - Memory is bounded. A recording has at most maxObject bytes, and all recordings
//     maxRecorded, which users share (resource/fairshare); events that wait for a sink have
//     at most maxWaiting bytes, and the number that the batch flags allow. A body that
//     exceeds a bound is left out of its event, and upstream's annotation says so.
//   - The Content-Encoding of a request's body is ignored where a Kubernetes server
//     ignores it: the event shows what the server stores.
//   - At most maxUnderWay batches are sent to a webhook at a time. Upstream starts a
//     goroutine for each without a limit, also while the webhook hangs.
//   - A request with an incomplete response, or a client that closes the connection, ends
//     with ResponseComplete. Upstream reports a panic; here Panic means a panic.
//   - The code of a response is the one that was sent, also if a filter wrote it, such as
//     the 504 of a deadline.
//   - The gateway records the events of all requests. It gets the annotations that the core and the
//     CRD server add by a header of their responses (annotations.go), also if these servers have
//     no policy.
//   - Events, sinks and formats are upstream's; backlog.go adds the bounds.
//   - Without a policy there is no Auditor.
//
// Runs in: gateway, core, crd.
package audit
