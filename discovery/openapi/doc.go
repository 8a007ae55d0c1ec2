// Package openapi makes and serves OpenAPI v3 documents: one for each
// group/version of a server's own kinds, and the index at /openapi/v3.
//
// Decisions that shaped it:
//
//   - Pay when used. The index needs only hashes, and a hash digests the inputs
//     of its document (the builder's version, the module versions, the kinds
//     and their verbs), so that no request for the index builds anything. A
//     document is built on first use and kept.
//   - Schemas come from the Go types by reflection, their descriptions from the
//     types' SwaggerDoc methods. What a client must be able to rely on is said
//     truthfully: PATCH lists exactly the content types that are accepted, and
//     every write declares dryRun, fieldManager and fieldValidation, because
//     kubectl decides on these (contract 1.7, 14).
//   - No OpenAPI v2 yet: clients that know v3 never ask for it.
//
// Runs in: gateway, core, crd.
package openapi
