// Package rest serves resources: one file per verb, over any [resource.Store]
// and any [Codec]. A server hands it a table of [Kind]s; a request reaches it
// as a [resource.Action].
//
// Decisions that shaped it:
//
//   - Bytes first. A reader gets the stored bytes where they are in the form
//     that it asks for; any other form is made once and shared by all who ask
//     for it, within a bounded memory (form.go). Lists and watch frames are put
//     together from the bytes of their objects (encode.go).
//   - Metadata has one shape everywhere, so the metadata-only form needs no
//     codec (partial.go).
//   - Tables are never kept: their cells hold ages (table.go).
//   - Everything in an answer is rendered before its first byte is sent, so
//     that what cannot be rendered is an error Status; only watches differ.
//   - Who owns which field is worked out by upstream's own parts, driven by one
//     of them for each write (ownership.go): nothing is kept for a kind that is
//     not being written, and schemas live as long as their owners say. Ownership
//     is a record, not a lock: a write that cannot be recorded is still done,
//     except by those who apply (apply.go).
//   - A view that is another kind (scale) is that kind to the client, and to
//     mutating admission, and a change of the object to everything behind
//     (projection.go).
//   - A write is negotiated before it is done: nothing is changed whose result
//     the client could not read (handler.go).
//
// Runs in: gateway, core, crd.
package rest
