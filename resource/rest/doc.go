// Package rest serves resources: one file per verb, over any [resource.Store]
// and any [Codec]. A server hands it a table of [Kind]s; a request reaches it
// as a [resource.Action].
//
// Decisions that shaped it:
//
//   - Bytes first. A reader gets the stored bytes where they are in the form
//     that it asks for; any other form is made once and shared by all who ask
//     for it, within a bounded memory (form.go). Lists and watch frames are put
//     together from the bytes of their objects (list_json.go, encode.go).
//   - The frame of a watch event is made once for all watchers of a form, and its
//     gzip member too, and sent as it stands where nothing else is pending
//     (frame.go, gzip.go); what is pending goes out in one piece (stream.go).
//     Profiles of 300 watchers over HTTP/2 put a fifth of a delivery's time into
//     this process's own code at first, most of it copying and quoting; net/http,
//     TLS and the kernel have nearly all of it now.
//   - What watches send is tallied by each of them and added to shared numbers
//     once per piece (watchmetrics.go).
//   - Metadata has one shape everywhere, so the metadata-only form needs no
//     codec (partial.go).
//   - Tables are not kept: their cells hold ages (table.go). Watchers of tables
//     share the frame of an event for the second that it is made in (frame.go).
//   - What cannot be rendered is an error Status: an answer about one object is
//     rendered before its first byte is sent, and a list is measured before.
//     Then it is sent in pieces, each made when the one before is on its way, so
//     that a list of a gigabyte takes no more memory than its objects do. Forms
//     that nobody keeps (YAML, indented, tables) are made once: of a long one
//     only the first megabyte is made before the rest is promised, and the
//     connection is cut where that promise cannot be kept (list_stream.go).
//     A list of stored bytes costs one copy of them and a few writes; measured,
//     the copy is two thirds of it, and pieces from 32 to 512 KB do equally well.
//   - Who owns which field is worked out by upstream's own parts, driven by one
//     of them for each write (ownership.go): nothing is kept for a kind that is
//     not being written, and schemas live as long as their owners say. Ownership
//     is a record, not a lock: a write that cannot be recorded is still done,
//     except by those who apply (apply.go).
//   - In the plain cases one walk tells who owns what, down to the byte as
//     upstream's tracker would: all of a new object belongs to its creator
//     (soleowner.go); of an update, what differs belongs to its writer, and only
//     the entries that this touches are made anew (ownerdiff.go, ownerchange.go).
//     Whatever is not plain is the tracker's: other versions, types that changed,
//     records that clients send, items without names. It was half of an update;
//     the walk makes a thirtieth of its garbage for a custom resource, and for
//     Go types half to two thirds, most of that in making them plain maps.
//   - The tracker keeps sets in sorted slices: a map of 50,000 fields, told in
//     the order of a Go map, took it ten seconds. It is told maps in order, and
//     gets no more items of lists and owners than a bound (ownerorder.go,
//     ownerbound.go).
//   - A view that is another kind (scale) is that kind to the client, and to
//     mutating admission, and a change of the object to everything behind
//     (projection.go).
//   - What a request may cost is bounded by more than its size where its shape
//     can make it dear: patches are applied to values decoded once, with bounds
//     on what they copy and move (patchmerge.go, patchoperations.go); the values
//     of a body are counted before it is decoded (package bodylimit); validation
//     reports a thousand errors at most (validation.go).
//   - A write is negotiated before it is done: nothing is changed whose result
//     the client could not read (handler.go).
//
// Runs in: gateway, core, crd.
package rest
