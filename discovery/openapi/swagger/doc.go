// Package swagger makes and serves OpenAPI v2: one document at /openapi/v2 of
// everything that is served, for clients that do not know v3.
//
// Decisions that shaped it:
//
//   - Pay when used. Nothing is fetched, made or kept before somebody asks, and
//     what is made is dropped when nobody has asked for a while ([Config].Idle).
//     The first who asks may get a 503 that says when to come again: making the
//     document goes on in the background, never while a server starts.
//   - A server's own v2 document is taken where it has one, and what is not of
//     the group/versions that it serves here is cut off. Of a server that has
//     none, its v3 documents are converted, one for each group/version, and are
//     fetched again only when their hash changed.
//   - Memory is bounded by what one part needs. The whole is never decoded: each
//     part is kept compressed, read, merged and written again one after the
//     other, and the result is compressed as it is written and sent as it is
//     kept. Only definitions that several parts have are held meanwhile. The
//     protobuf form is made from the JSON in pieces, which can be joined because
//     the concatenation of two protobuf messages is their merge.
//   - Names that two servers use for different things are told apart by
//     kube-openapi's aggregator, whose renaming clients know.
//   - What the readers of v2 cannot bear (a reference to nothing, an array
//     without items, oneOf) is taken out of each part before it is merged: kubectl
//     gives up on the whole document because of one such schema.
//   - A part that cannot be had leaves the others as they are. What was good last
//     stays, and a log line and a metric name the server.
//
// Runs in: gateway.
package swagger
