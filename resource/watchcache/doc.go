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
//   - Watchers own no queue. Each resource that is served has a lane: the
//     recent changes of its range. A watcher is a position in its lane, and
//     pulls. A slow one falls off the lane's end and is told so (410); it can
//     neither block others nor hold memory, and it never loses an event
//     silently.
//   - Consistent reads without asking etcd for data. A read of the latest state
//     asks for the revision that etcd is at (shared with everybody who waits)
//     and then waits until the tree has got there.
//   - Writes go through to the store beneath, with the cached object as their
//     first guess.
//
// Runs in: gateway, core, crd.
package watchcache
