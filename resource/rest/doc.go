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
//   - A write is negotiated before it is done: nothing is changed whose result
//     the client could not read (handler.go).
//
// Runs in: gateway, core, crd.
package rest
