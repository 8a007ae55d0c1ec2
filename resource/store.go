package resource

import (
	"context"
	"time"
)

// Freshness is how recent the state must be that a read returns or a watch begins with.
type Freshness uint8

const (
	// Latest reflects every write acknowledged to anyone before the call
	// (resourceVersion unset). It is the zero value: the safe one.
	Latest Freshness = iota
	// Any is any state, such as a cached one (resourceVersion=0).
	Any
	// NotOlderThan is Revision or newer.
	NotOlderThan
	// Exact is Revision itself. For List only.
	Exact
)

// At is the point in a store's history at which a read is made.
type At struct {
	Freshness Freshness
	// Revision is used by NotOlderThan and Exact.
	Revision int64
}

// ListOptions are the options of Store.List.
type ListOptions struct {
	// Namespace restricts the list to one namespace; "" is all of them.
	Namespace string
	Selector  Selector
	At        At
	// Limit is the most items to return; 0 is no limit.
	Limit int64
	// Continue is the token of an earlier page; At is ignored if it is set.
	Continue string
	// Parts permits the store to return only the first part of the page, with Continue and
	// Page set, so that a store that fetches objects does not hold all of them. The caller
	// lists the rest with Continue and without Limit, and takes as many items as the page
	// lacks.
	Parts bool
}

// List is a page of objects in key order, all at one revision.
type List struct {
	Items    []*Object
	Revision int64
	// Continue names the next page; "" on the last.
	Continue string
	// Remaining is how many items follow this page; nil when not known.
	Remaining *int64
	// Page is set if this is only the first part of the page (ListOptions.Parts).
	Page *PageEnd
}

// PageEnd has the Continue and Remaining of a page, as in List.
type PageEnd struct {
	Continue  string
	Remaining *int64
}

// WatchOptions are the options of Store.Watch.
type WatchOptions struct {
	Namespace string
	Selector  Selector
	// Since, if above 0, requests the events strictly after that revision. No
	// state is sent first. InitialEvents and At are ignored.
	Since int64
	// InitialEvents requests the state at At first, as Added events in key
	// order, followed by one Synced event (see EventType); then live events.
	// With Since 0 and InitialEvents false the watch begins now.
	InitialEvents bool
	At            At
	// Bookmarks requests a Bookmark event about once a minute, and from a watch cache shortly
	// before the context's deadline, so that the watcher can resume from there.
	Bookmarks bool
}

// EventType is the type of an Event.
type EventType uint8

const (
	// Added: the object is new, or has entered the selection.
	Added EventType = iota + 1
	// Modified: the object has changed within the selection.
	Modified
	// Deleted: the object is gone, or has left the selection. Object is its
	// last matching state, carrying the revision of the change.
	Deleted
	// Bookmark: everything up to Revision has been sent. Object is nil.
	Bookmark
	// Synced: the initial events end here; Revision is that of the state sent.
	// Object is nil. Sent only with InitialEvents.
	Synced
)

// Event is one event of a watch.
type Event struct {
	Type     EventType
	Object   *Object
	Revision int64
}

// Watcher is a running watch. Next and Close may be called from different
// goroutines; Next from one at a time.
type Watcher interface {
	// Next returns the next events, at least one, in revision order. It blocks
	// until there is one, ctx ends (its error) or the watch ends: io.EOF after
	// Close or when the store shuts down, a 410 Expired StatusError when the
	// events asked for are no longer kept or the watcher was too slow, else
	// another StatusError. After an error every call returns it again.
	// The returned slice is valid until the next call.
	Next(ctx context.Context) ([]Event, error)
	// Close ends the watch and frees its resources. It may be called twice.
	Close()
}

// Mutation is the result of Mutate.
type Mutation struct {
	// Object is the next state, as made by Parse from bytes; its
	// resourceVersion is ignored. If its stored bytes equal the current ones,
	// nothing is written and the current object is returned.
	Object *Object
	// Delete removes the object instead. If Object is not nil it is the last
	// state, which Update returns carrying the revision of the deletion.
	Delete bool
	// TTL, if above 0, has the store remove the object after that time.
	TTL time.Duration
}

// Mutate decides the next state from the current one; cur is nil when the
// object does not exist. It may be called several times, and its first call
// may see a cached state: an error is reported only if it is also reached from
// the state in etcd. It must not change cur.
type Mutate func(cur *Object) (Mutation, error)

// Reader reads and watches the objects of one resource. All errors are StatusErrors. All
// methods are safe for concurrent use, and every returned Object carries its revision.
type Reader interface {
	// Info returns the resource.
	Info() *Info

	// Get returns one object. Errors: NotFound; Timeout with cause
	// ResourceVersionTooLarge when At lies in the future.
	Get(ctx context.Context, key Key, at At) (*Object, error)

	// List returns a page of objects in key order. Errors: Expired (410) when
	// an Exact revision or the revision in Continue is no longer kept (then
	// metadata.continue of the Status holds an inconsistent-continue token);
	// BadRequest for a malformed Continue; Timeout with cause
	// ResourceVersionTooLarge when At lies in the future.
	List(ctx context.Context, opts ListOptions) (*List, error)

	// Watch starts a watch; ctx bounds its whole life. Errors that are known
	// at once are returned here, others by Next: a Since that is no longer
	// kept is Expired from either. A store with storage that a Feed follows
	// may have no watches: MethodNotSupported.
	Watch(ctx context.Context, opts WatchOptions) (Watcher, error)
}

// Store is a Reader that also writes, under the same rules.
type Store interface {
	Reader

	// Create stores a new object under key. Errors: AlreadyExists. ttl above 0
	// has the store remove the object after that time.
	Create(ctx context.Context, key Key, obj *Object, ttl time.Duration) (*Object, error)

	// Update replaces the object with the result of mutate, and retries on conflicts until
	// ctx ends. If there is no object, mutate is called with nil and its Object is created;
	// NotFound comes from mutate only. No other code compares and swaps.
	Update(ctx context.Context, key Key, mutate Mutate) (*Object, error)

	// Delete removes the object if check (nil: always) agrees with its current
	// state, and returns its last state carrying the revision of the deletion.
	// Errors: NotFound; errors of check, by the rule of Mutate.
	Delete(ctx context.Context, key Key, check func(cur *Object) error) (*Object, error)
}

// Change is a change of one storage path in a Feed.
type Change struct {
	// Path is the storage path below the prefix, as of Info.ObjectPath.
	Path string
	// Object is the new state, nil when the path was deleted or is Unreadable.
	Object *Object
	// Unreadable, if not nil, is the StoreReadError of a path with a value that cannot be
	// decrypted or decoded. It is not a deletion, but earlier states of the path are out of date.
	Unreadable error
	// Revision is the revision of the change. Several changes of one
	// transaction share it.
	Revision int64
	// Create is true when the path did not exist before.
	Create bool
}

// FeedSink receives the changes of a Feed. Its methods are called from one goroutine, in
// revision order, and must not block for long.
type FeedSink interface {
	// Reset replaces all earlier state: state is the whole range at revision rev, in path
	// order. It is called first, and again after compaction of changes that were not
	// delivered. Path and either Object or Unreadable are set in each Change.
	Reset(rev int64, state []Change)
	// Apply delivers changes in revision order; they never split a
	// transaction.
	Apply(changes []Change)
	// Progress reports that every change up to rev has been delivered.
	Progress(rev int64)
}

// PartialSink is a FeedSink that can use a part of its first state before it has the rest.
type PartialSink interface {
	FeedSink
	// ResetPart is Reset with a state that lacks objects below the storage path prefixes of loading.
	ResetPart(rev int64, state []Change, loading []string)
	// Load adds objects below a prefix of ResetPart, as of its rev and in path order. With last set there are no more:
	// changes below the prefix since rev have been applied, and none before the other objects were added.
	Load(prefix string, objects []Change, last bool)
}

// Feed is a whole range of storage at one revision, then its events.
type Feed interface {
	// Run delivers to sink until ctx ends, recovering from compaction and
	// lost connections by itself. It returns ctx's error.
	Run(ctx context.Context, sink FeedSink) error
	// Current returns the store's revision by a linearizable read: it is at
	// least that of every write acknowledged before the call. Concurrent
	// callers share reads that begin after they called. It fails where the store
	// was set back to before what has been delivered, until that was Reset.
	Current(ctx context.Context) (int64, error)
	// RequestProgress requests a call of Progress soon, even without changes.
	RequestProgress(ctx context.Context) error
}

// Hinted is a Store with writes that can start from a cached state, which saves a read. As the
// rule of [Mutate] says, a decision made from a hint is committed only if the hint is the
// current state, and an error or a no-op is returned only if the current state leads to it
// too.
type Hinted interface {
	Store
	// UpdateFrom is Update with hint as the state of the first call of mutate; nil: none.
	UpdateFrom(ctx context.Context, key Key, hint *Object, mutate Mutate) (*Object, error)
	// DeleteFrom is Delete with hint as the state of the first call of check; nil: none.
	DeleteFrom(ctx context.Context, key Key, hint *Object, check func(cur *Object) error) (*Object, error)
}

// Discarder is a Store that can delete objects that it cannot read.
type Discarder interface {
	Store
	// Discard deletes the object under key if its value cannot be decrypted or decoded, with
	// no checks. With dryRun it deletes nothing. Errors: NotFound; Conflict if the object can
	// be read.
	Discard(ctx context.Context, key Key, dryRun bool) error
}
