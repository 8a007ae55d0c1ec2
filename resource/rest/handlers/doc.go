// Package handlers implements the verbs on resources, one file each, over any
// [resource.Store] and any [rest.Codec]. A server passes its [rest.Kind]s; the request is
// the [resource.Action] in the context.
//
// Decisions:
//
//   - Stored bytes that have the requested form are sent unchanged. Other forms are encoded
//     once and shared, within bounded memory (package form); lists and watch frames are built
//     from them (packages liststream, watchstream).
//   - An object that cannot be encoded is an error Status: one object is encoded before its
//     header is sent, and so is a list where that is cheap (package liststream).
//   - Content negotiation precedes the write: a client that accepts no format of the result
//     changes nothing (handler.go).
//   - Field ownership is tracked during one write (package managedfields); nothing is kept
//     for kinds that are not written. It is a record, not a lock: a write succeeds if its
//     ownership cannot be recorded, except an apply patch (apply.go).
//   - A subresource of another kind (scale) is that kind for the client and mutating
//     admission, and a change of the object for everything that follows (subresource.go).
//   - Bodies are bounded by more than their size where their structure makes them costly:
//     patches are applied to values decoded once, with bounds on what they copy and move
//     (package patch), the values of a body are counted before it is decoded
//     (requestbody.go), and at most a thousand validation errors are sent (validation.go).
//
// Runs in: gateway, core, crd.
package handlers
