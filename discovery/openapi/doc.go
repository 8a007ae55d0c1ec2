// Package openapi makes and serves OpenAPI v3 documents: one for each
// group/version of a server's own kinds, and the index at /openapi/v3.
//
// Decisions that shaped it:
//
//   - Pay when used. The index needs only hashes, and a hash digests the inputs
//     of its document (the builder's version, the module versions, the rows of
//     the kinds and what identifies their schemas), so that no request for the
//     index, and no change of the set of kinds, builds anything. A document is
//     built when it is first asked for, once for all who ask, and kept within a
//     budget.
//   - Kinds come and go (Update). What says the same as before keeps its hash
//     and what is built of it: one definition among thousands that changes costs
//     one digest.
//   - Schemas come from the Go types by reflection, their descriptions from the
//     types' SwaggerDoc methods; a kind that is no Go type brings its own, which
//     is completed with what every object has. One that fails leaves the other
//     kinds of its document as they are, and such a document is not for keeping.
//   - What a client must be able to rely on is said truthfully: PATCH lists
//     exactly the content types that are accepted, and every write declares
//     dryRun, fieldManager and fieldValidation, because kubectl decides on these
//     (docs/wire.md 1.7, 14).
//   - Documents are put together as bytes: the schema of a large custom resource
//     is encoded once and not read again.
//   - Documents of other servers (Remote) are fetched when first asked for and
//     kept by their hash, which says all there is to say about them.
//   - OpenAPI v2 is the gateway's alone, which makes it of these documents: clients
//     that know v3 never ask for it.
//
// Runs in: gateway, core, crd.
package openapi
