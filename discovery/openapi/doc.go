// Package openapi makes and serves OpenAPI v3 documents: one per group/version of a server's own
// kinds, and the index at /openapi/v3.
//
//   - Documents are built when they are first requested, once for concurrent requests, and cached
//     within a budget. The index needs hashes only, which digest the inputs of a document (the
//     version of the builder, module versions, the kinds and what identifies their schemas).
//   - Update replaces the kinds. Unchanged group/versions keep their hash and their document.
//   - Schemas of Go types are the definitions that openapi-gen generated, most of them those of
//     Kubernetes. Other kinds bring their schema, which is completed with the fields of every object. A
//     schema that fails leaves the other kinds of the document as they are, and the document is not
//     cached.
//   - Documents of Kubernetes' groups equal those of kube-apiserver (docs/wire.md 1.7).
//   - PATCH lists the accepted content types, and writes declare dryRun, fieldManager and
//     fieldValidation: kubectl decides by these (docs/wire.md 1.7, 14).
//   - Documents are assembled from encoded schemas, so that large ones are encoded once.
//   - Documents of other servers (Remote) are fetched at the first request and cached by hash.
//   - OpenAPI v2 is served by the gateway only, which converts it from these documents.
//
// Runs in: gateway, core, crd.
package openapi
