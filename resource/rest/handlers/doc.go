// Package handlers serves resources, one file per verb, over any [resource.Store] and any
// [rest.Codec]. A server gives it a table of [rest.Kind]s; a request reaches it as a
// [resource.Action].
//
// Decisions:
//
//   - Bytes first. Stored bytes that are in the requested form are sent as they are; any
//     other form is encoded once and shared by its readers, within bounded memory
//     (form.go). Lists and watch frames are built from the bytes of their objects
//     (list_json.go, encode.go).
//   - The frame of a watch event, and its gzip member, is built once for all watchers of
//     a form and sent without copying where nothing else is pending (frame.go, gzip.go);
//     pending frames are sent together (stream.go). Each watch counts what it sends and
//     adds that to shared metrics once per write (watchmetrics.go).
//   - Metadata has the same shape in every kind, so the metadata-only form needs no codec
//     (partial.go).
//   - Tables are not cached: their cells hold ages (table.go). Watchers of tables share
//     the frame of an event for one second (frame.go).
//   - An object that cannot be encoded is an error Status: an answer about one object is
//     encoded before its first byte is sent, and a list is measured before. It is then
//     sent in pieces, each built while the one before is sent, so that a list of a
//     gigabyte takes no more memory than its objects. Forms that are not cached (YAML,
//     indented, tables) are built once: of a long one, only the first megabyte is built
//     before the status is sent, and if the rest cannot be encoded the connection is
//     closed (list_stream.go).
//   - Field ownership is tracked for one write at a time (managedfields): nothing is kept
//     for a kind that is not written. It is a record, not a lock: a write whose ownership
//     cannot be recorded is still done, except an apply patch (apply.go).
//   - A subresource that is another kind (scale) is that kind to the client and to
//     mutating admission, and a change of the object to everything behind
//     (projection.go).
//   - Bodies whose shape makes them expensive are bounded by more than their size:
//     patches are applied to values decoded once, with bounds on what they copy and move
//     (package patch), the values of a body are counted before it is
//     decoded (requestbody.go), and only the first thousand validation errors are sent
//     (validation.go).
//   - Content negotiation comes before the write: nothing is changed whose result the
//     client cannot read (handler.go).
//
// Runs in: gateway, core, crd.
package handlers
