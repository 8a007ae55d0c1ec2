// Package garbage deletes objects without existing owners, as the garbage collector of
// kube-controller-manager does (background, foreground and orphan deletion by
// metadata.ownerReferences; docs/wire.md 15.1).
//
// A [Graph] has the metadata of all objects of all servers, which [Sources] keep up to date.
// It knows which objects depend on which, and queues the uid of an object that may have to be
// deleted or changed. A [Collector] takes uids from the queue. That an owner is absent is
// decided by reading it from its server, and an object is deleted only in the state that was
// judged.
//
// Objects of a server that does not respond wait for that server; they hold up no others,
// because every API group has only a part of the requests in flight.
//
// Runs in: core.
package garbage
