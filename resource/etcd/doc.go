// Package etcd stores resources in etcd v3. It has Stores, Feeds, leader election,
// compaction, and documents that are not resources. It is the only package that imports
// etcd's client.
//
// The key of an object is its storage path below the prefix ("/registry" by default). Its
// value is resource.Object.Stored, passed through a [Transformer]; its resourceVersion is
// the mod revision of the key and is not stored. kube-apiserver uses the same layout.
//
// Decisions:
//
//   - Nothing waits for etcd to start. While etcd is unreachable, calls fail with a Status
//     after callTimeout at most, and Feeds retry.
//   - etcd counts as silent after it has answered nothing for five seconds in which it owed
//     answers (breaker.go). Until it answers again, new requests fail with 503 at once, and
//     so do reads in progress. Probes find out whether it answers, so neither one slow
//     request, nor one member that hangs, nor an election opens the breaker.
//   - A read that one member does not answer is sent to the next member (read.go). A write
//     is sent once.
//   - Every write is one transaction on one key that compares its mod revision. If the
//     outcome is unknown (no response, a broken connection, a timeout inside etcd), the
//     error is a 504 without Retry-After, because clients repeat requests that have one. A
//     write that etcd has certainly not executed, because it was full, had no leader or was
//     unreachable, is a 503 with Retry-After (errors.go).
//   - A value that cannot be read is neither missing nor deleted. Feeds deliver it as
//     unreadable.
//   - Ranges are read in pages at one revision: 16 keys at first, then about 8 MiB by the
//     sizes seen. A page above 32 MiB is not received; fewer keys are requested instead
//     (read.go). Lists are returned in parts of that size.
//   - Transactions are built from etcd's protobuf types, because the operations of its
//     client copy a value twice.
//   - Stores have no watches: a Feed is one watch over the span of its ranges
//     (watchstream.go), and resource/watchcache serves any number of watches from it. A
//     watch for each range would be ordered only if etcd were asked for progress after every
//     change. Values that this process has written are not parsed again when the feed
//     delivers them.
//   - The first state of a Feed leaves out the rest of each resource with more than 20,000 objects.
//     That is read beside the watch, and its changes wait until it is complete (load.go).
//   - A Feed replaces its stream if etcd does not confirm it in time, leaves a request for
//     progress unanswered, or sends nothing while a linearizable read returns a newer
//     revision.
//   - The current revision is a linearizable read, shared by the callers that waited when
//     it began. A progress notification does not replace it: it has the revision of one
//     member, which may lag.
//   - Watches require a leader, so that a member that is cut off from its cluster ends them.
//
// Runs in: gateway, core, crd.
package etcd
