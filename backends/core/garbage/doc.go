// Package garbage deletes objects whose owners are gone, as the garbage collector of
// kube-controller-manager does (background, foreground and orphan deletion by
// metadata.ownerReferences).
//
// A [Graph] is told of the metadata of all objects of all servers. It knows which objects
// depend on which, and gives the uid of an object to a queue when the object may have to be
// deleted or changed. A [Collector] takes uids from the queue, reads the object and its
// owners again from their servers, and only then acts: the graph decides what is looked at,
// never what is deleted.
//
// Objects of a server that does not respond wait for that server; they hold up no others,
// because every API group has only a part of the requests in flight.
//
// Runs in: core.
package garbage
