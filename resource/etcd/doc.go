// Package etcd keeps resources in etcd v3: Stores, Feeds, leader election, compaction,
// and documents that are no resources. It is the only package that imports etcd's
// client.
//
// An object's key is its storage path below the prefix ("/registry" by default). Its
// value is resource.Object.Stored, passed through a [Transformer]; its resourceVersion is
// the key's mod revision and is not stored. This is the layout of kube-apiserver.
//
// Decisions:
//
//   - Nothing waits for etcd to start: a call fails as a Status after at most
//     callTimeout while etcd is away, and a Feed tries again.
//   - etcd is silent once it has owed answers for five seconds and given none
//     (breaker.go). Until it answers again, requests for it are a 503 at once, and reads in
//     progress end with that; otherwise each would wait for its own deadline. Whether it
//     answers is asked by one small read at a time, so that neither a slow request, nor
//     one member that hangs, nor an election counts.
//   - Every write is one transaction on one key that compares its mod revision. If the
//     outcome is unknown (no answer, a broken connection, a timeout inside etcd) it is a
//     504 without Retry-After, because clients repeat a request that has one. A write that
//     etcd has certainly not done, because it was full, had no leader or could not be
//     reached (unsent.go), is a 503 with Retry-After.
//   - A value that cannot be read is neither missing nor a deletion. Feeds deliver it as
//     unreadable.
//   - Ranges are read in pages at one revision: 16 keys at first, then about 8 MiB by the
//     sizes seen. A page of more than 32 MiB is not received, and fewer keys are requested
//     (pager.go). Lists and the initial states of watches are passed on in parts of that
//     size.
//   - Transactions are built in etcd's protobuf types and not by the client's operations,
//     which copy a value twice.
//   - A Feed is one watch over the span of its ranges (watchstream.go). A watch for each
//     range would be in order only by asking etcd for progress after every change, which
//     costs as much as the change. Values that this process has just written are not
//     parsed again when the feed delivers them (recent.go).
//   - A Feed does not trust its stream. One that etcd does not confirm in time, that
//     leaves a request for progress unanswered, or that receives nothing while a
//     linearizable read finds a newer revision, is replaced; watchers wait some seconds.
//   - The current revision is a linearizable read, shared by the callers that waited when
//     it began. A progress notification does not replace it: it is the revision of one
//     member, which may lag.
//   - Watches require a leader, so that a member cut off from its cluster ends them.
//
// Runs in: gateway, core, crd.
package etcd
