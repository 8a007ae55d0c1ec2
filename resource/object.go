package resource

import (
	"sync/atomic"
	"time"
)

// Encoding is the form an Object's bytes are in.
type Encoding uint8

const (
	// JSON is one JSON object.
	JSON Encoding = iota
	// Protobuf is the Kubernetes envelope: the magic "k8s\x00" and a
	// runtime.Unknown message (k8s.io/apimachinery runtime/generated.proto).
	Protobuf
)

// Owner is an owner reference for garbage collection.
type Owner struct {
	APIVersion, Kind, Name, UID string
	Controller, BlockDeletion   bool
}

// Header has the fields that Portico uses without decoding an object. Parse scans them.
type Header struct {
	APIVersion, Kind string
	Namespace, Name  string
	UID              string
	// Revision is the etcd revision of the last change; 0 for an object that
	// was never stored.
	Revision   int64
	Generation int64
	Labels     Labels
	Finalizers []string
	Owners     []Owner
	// deleted is metadata.deletionTimestamp in Unix seconds; 0 for a living object.
	deleted int64
}

// Key returns the object's key.
func (h *Header) Key() Key { return Key{Namespace: h.Namespace, Name: h.Name} }

// Terminating reports whether deletion of the object has begun.
func (h *Header) Terminating() bool { return h.deleted != 0 }

// DeletionTime returns metadata.deletionTimestamp; the zero time for a living object.
func (h *Header) DeletionTime() time.Time {
	if h.deleted == 0 {
		return time.Time{}
	}
	return time.Unix(h.deleted, 0).UTC()
}

// SetDeletionTime sets metadata.deletionTimestamp, in seconds; the zero time is none.
func (h *Header) SetDeletionTime(t time.Time) {
	h.deleted = 0
	if !t.IsZero() {
		h.deleted = t.Unix()
	}
}

// Object is one object: its header and its encoded bytes.
//
// An Object is immutable and shared by its readers. Make one with [Parse] or
// [Object.WithRevision].
type Object struct {
	Header
	// Data is the whole object, apiVersion and kind included, in the version
	// and encoding it is stored in. Where Revision is not 0,
	// metadata.resourceVersion in Data is Revision.
	Data []byte

	layout    layout
	Encoding  Encoding
	fields    atomic.Pointer[cachedFields]
	canonical atomic.Pointer[canonicality]
}

// canonicality is whether Data is canonical by one check.
type canonicality struct {
	by        any
	canonical bool
}

// Canonical reports whether Data can be sent to readers as it is stored. It cannot
// where a schema would prune it or add defaults on reading. The result of check is
// kept for the next call with the same by, which must be comparable, identifies
// check, and stays in memory for as long as the object does. Safe for concurrent
// use; check may run more than once.
func (o *Object) Canonical(by any, check func(*Object) bool) bool {
	if c := o.canonical.Load(); c != nil && c.by == by {
		return c.canonical
	}
	c := &canonicality{by, check(o)}
	o.canonical.Store(c)
	return c.canonical
}
