// Package kinds is the core server's table of kinds: one row for each built-in
// resource it serves, one file per resource, holding everything in which it
// differs from the others: names, defaults, what writers may set, validation,
// selectable fields and the columns of its table.
//
// Runs in: core.
//
// Decisions that shaped it:
//
//   - A row is data and plain functions on the Go types of k8s.io/api. There is
//     no internal version: the storage version's type is the hub form, so
//     defaults, validation and storage all see one struct.
//   - Validation is written here because upstream's is not importable. Field
//     paths and messages are upstream's, since tools and people match on them.
//     Metadata is checked by package rest for every kind and is not repeated
//     here. ValidateUpdate is complete: it includes what Validate checks.
//   - What a write needs from outside its own object (a cluster IP, a token) is
//     a function in [Config], so this package has no state, no clients and no
//     goroutines.
//   - CEL expressions (match conditions, validations, variables, mutations) are
//     checked for presence and size but are not compiled; the admission
//     engine that evaluates policies reports those that do not compile.
//   - There are no nodes behind Portico, so node ports are kept when asked for
//     but never allocated, and healthCheckNodePort is never required.
package kinds
