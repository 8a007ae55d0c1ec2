// Package watchcache keeps all objects of a process in memory: one ordered tree of objects
// by storage path, filled by one [resource.Feed].
//
// Decisions:
//
//   - One tree for the whole process. A snapshot is an O(1) copy-on-write copy of it, so
//     every read walks a consistent, immutable state, and no lock is held while a response is
//     written. A resource is a range of the tree: one more resource costs no watch, no list
//     and no goroutine.
//   - Watchers have no queues. Each served resource has an event log, the recent changes of
//     its range; a watcher is a position in it. A watcher that is too slow loses its position
//     and ends with 410. It neither blocks others, nor uses memory, nor misses an event.
//   - If its client does not read, a watcher holds at most a batch of events, bounded by number
//     and bytes, and the snapshot of its initial events, bounded by time and by what was
//     replaced since (initial.go).
//   - History is bounded in bytes, for all resources together: the event logs, and what was
//     replaced since any snapshot that is held (cache.go).
//   - A watcher without events to read is parked under what it watches (all, a namespace, a
//     name); only a change there wakes it. With ten thousand watches of one object each, a
//     change of another object costs them nothing.
//   - Consistent reads come from memory. A read of the latest state reads etcd's revision,
//     shared with concurrent readers, and waits until the tree has reached it. One goroutine
//     requests progress for all readers that wait. Progress alone would prove nothing: a
//     member that was paused reports its old revision. If the tree does not reach the
//     revision in time, the read goes to the store beneath.
//   - Label and field selectors are evaluated by walking the range: 50,000 objects take 7 ms.
//     A name or a namespace is a path or a range of paths.
//   - Metrics of the state are computed when they are collected (metrics.go).
//   - The first state may come in parts: resources of many objects are loaded while the others
//     are served. Before a resource is complete, single objects and pages come from the store
//     beneath, and so do the resources that a process needs before it serves (early.go).
//   - Writes go to the store beneath, with the cached object as a hint. They do not wait for
//     the tree; reads of the latest state do.
//
// Order: under Cache.mu a change is first added to its event log, then the snapshot that
// contains it is published. A reader of a snapshot therefore finds every change up to its
// revision in the event logs.
//
// Runs in: gateway, core, crd.
package watchcache
