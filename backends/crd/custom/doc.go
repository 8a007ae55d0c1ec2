// Package custom serves custom resources: it makes the row (rest.Kind) of each version of
// a definition, with its codec, columns, subresources, validation and field ownership.
// Package crd decides which definitions are served.
//
// Schemas, validators and CEL programs are built when first needed and kept within a
// budget (schemas.go), because most of many definitions are never written to.
//
// A written object passes normalize.go (coerce metadata, prune, add defaults), then
// validate.go (schema, list types, CEL rules), except where package prevalidate finds from
// its bytes that neither would change or reject anything (codec.go, validate.go). Stored objects
// are normalized on reading, since their schema may have changed since.
//
// Upstream's validators take time that grows with the square of an object's errors:
// validation stops after 1,000 of them (validate.go). Defaults add at most 1 MiB to an
// object (normalize.go).
//
// Runs in: crd.
package custom
