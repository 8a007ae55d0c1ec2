// Package watchcache keeps everything a process serves in memory: one ordered
// tree of objects, keyed by storage path, fed by one [resource.Feed].
//
// Decisions that shaped it:
//
//   - One tree for the whole process. A snapshot of it is an O(1) copy-on-write
//     copy, so every read walks a state that is whole and never changes, and no
//     lock is held while anybody writes to a client. A resource is a range of
//     the tree: serving one more costs no watch, no list and no goroutine, and
//     its objects are there before it is.
//   - Watchers own no queue. Each resource that is served has a event log: the
//     recent changes of its range. A watcher is a position in its event log, and
//     pulls. A slow one falls off the event log's end and is told so (410); it can
//     neither block others nor hold memory, and it never loses an event
//     silently.
//   - What a watcher holds on to while its client does not read is bounded: a
//     batch of events by number and bytes, and the state it begins with by time
//     and by what was replaced since (initial.go), for that state is the whole
//     process's.
//   - The past is bounded in bytes, for all resources together: what the event logs
//     remember, and what was replaced since any snapshot that is held on to
//     (memory.go).
//   - A watcher that has seen everything is parked under what it watches (all,
//     a namespace, a name), and only a change there wakes it: ten thousand
//     watches of one object each cost a change of another object nothing.
//   - Consistent reads without asking etcd for data. A read of the latest state
//     asks for the revision that etcd is at (shared with everybody who waits)
//     and then waits until the tree has got there. One loop asks for progress
//     on behalf of all readers that wait. What the feed's own member says about
//     progress proves nothing: one that was paused goes on with its old
//     revision. Where the tree does not get there the store beneath is read.
//   - An index is made of a label or a field when lists, or watches that begin,
//     have often looked for one value of it in vain, and it is they who keep it: a
//     change costs it nothing. It shows an earlier revision, and the event log knows what changed
//     since. Measured with 50,000 objects, 500 of them chosen: 6.8 ms by a walk,
//     0.15 ms by an index, 0.5 ms where ten objects change between the lists.
//     A name or a namespace needs none: it is a path or a range of paths.
//   - What the metrics of each resource say is read from the tree and the event logs
//     when somebody asks (metrics.go): no request pays for it.
//   - Nobody waits for the first state who can do without: single objects and
//     pages come from the store beneath until then, and so does what a process
//     must know before it can serve at all (early.go).
//   - Writes go through to the store beneath, with the cached object as their
//     first guess. They need not wait for the tree: reads of the latest state do.
//
// Order, from which the rest follows: under Cache.mu a change is first put into
// its event log, then the snapshot that contains it is published. Who has loaded a
// snapshot therefore finds every change up to its revision in the event logs.
//
// Runs in: gateway, core, crd.
package watchcache
