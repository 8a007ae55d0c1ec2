// Package audit tells who did what: it judges every request by an audit policy,
// builds the events that the policy asks for, and hands them to a log file, a
// webhook, or both.
//
// Policies, levels, events, truncation, batches and metrics are those of
// k8s.io/apiserver, so that what reads the audit log of a kube-apiserver reads
// this one. What is ours is where an event gets its content from, since here
// nobody decodes what passes by.
//
// Decisions that shaped it:
//
//   - Bodies are recorded as they pass (recording.go), only where the policy
//     asks for them, and made JSON when the request is over (object.go). So
//     streaming and retries are what they are without audit. At level Metadata
//     only the body of an error is looked at, for its reason. Of streams there are none,
//     and a body in a form that nobody here reads is named as unread.
//   - Memory is bounded. A recording ends at maxObject; all of them together
//     hold at most maxRecorded, those of one user maxShare, and what waits for a
//     sink at most maxWaiting besides the number of events that the batch flags
//     allow. A body that does not fit, as it came or once it is decoded, is
//     left out of its event, which says so in the annotation that upstream has for
//     that.
//   - A request's body is what its server takes it for: Content-Encoding is not
//     looked at where a server of Kubernetes would not.
//   - At most maxUnderWay batches are on their way to a webhook: upstream sends
//     each from a goroutine of its own, without end while the webhook hangs.
//   - A request that ends by itself (an answer that is cut off, a client that
//     went away) has ended: upstream calls that a panic. Panic is for panics.
//   - A response's code is what the client got, also where that came from
//     outside of the handler: the 504 of a deadline.
//   - There is an event for every request, and what it takes is taken of every
//     request. So an event is put together when it is told (event.go), in room that
//     is used again, and upstream's own audit context is made only for those of
//     upstream's parts that ask for it, to note something.
//   - The log's lines, in batch mode, are gathered for gatherFor and written in
//     pieces of writeBytes at most: a gateway that has one processor waits for no
//     long write, and for no write of each line.
//   - Without a policy there is no Auditor, and nothing costs anything.
//
// Runs in: gateway, core, crd.
package audit
