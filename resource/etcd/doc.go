// Package etcd keeps resources in etcd v3: Stores, Feeds, leader election,
// compaction, and documents that are no resources. It is the only package that
// imports etcd's client.
//
// An object's key is its storage path below the prefix ("/registry" by
// default), its value is what resource.Object.Stored returns, passed through a
// [Transformer]; its resourceVersion is the key's mod revision and is never
// stored. This is the layout kube-apiserver uses.
//
// Decisions that shaped it:
//
//   - Nothing here waits for etcd to start: a call made while etcd is away
//     fails as a Status after at most callTimeout, a Feed goes on trying.
//   - An etcd that owes answers and has given none for five seconds, to anybody, is
//     silent (pulse.go). Until it answers again what needs it is a 503 at once,
//     and reads that are under way end with it; requests that waited, each for
//     its own deadline, would be as many as clients have patience for. The
//     question whether it is there is one small read at a time, so that neither
//     what is slow by itself, nor one member that hangs, nor an election counts.
//   - Every write is one transaction on one key that compares its mod revision.
//     One whose outcome nobody knows (no answer, a broken connection, a timeout
//     inside etcd) is a 504 without Retry-After, for clients repeat by themselves
//     what has it. What etcd has certainly not done, because it was full, had no
//     leader or could not be reached, is a 503 with it.
//   - A value that cannot be read is neither absent nor a deletion. Feeds deliver
//     it as what it is, so that a cache can say so too.
//   - Ranges are read in pages at one revision: 16 keys at first, then about 8 MiB
//     by the sizes seen. A page that comes to more than 32 MiB all the same is not
//     received, and fewer keys are asked for (pager.go). Lists and the states that
//     watches begin with are handed on in parts of that size.
//   - Transactions are made in etcd's own form, past the client's operations,
//     which copy a value twice: that was half of a create's garbage here.
//   - A Feed speaks etcd's own form too: one stream, read by one goroutine
//     (watchstream.go). The client's watcher wakes two goroutines for each range
//     at every answer about progress; with the 70 ranges of the CRD server that,
//     and scanning each write a second time when it comes back (recent.go), was a
//     seventh of a create's CPU there.
//   - A Feed trusts no stream. One that etcd does not confirm in time, that leaves
//     a request for progress unanswered, or that hears nothing while a linearizable
//     read finds that there is something to hear, is given up for another; who
//     watches waits some seconds then, never for good (stream.go).
//   - A Feed over several ranges holds an event back until all its ranges are
//     known to have come as far, because etcd lets a slow range lag behind its
//     neighbours. With one range nothing is ever held.
//   - The current revision is a linearizable read; those who wait for it share
//     one that began after they asked. A progress notification is no
//     substitute: it tells the revision of one member, which may lag.
//   - Watches want a leader, so that a member cut off from its cluster ends
//     them instead of falling silent.
//
// Runs in: gateway, core, crd.
package etcd
