// Package kinds is the core server's table of kinds: one row (rest.Kind) for each built-in
// resource, and one file for each row, with all that distinguishes the kind: names, defaults,
// the fields that clients may set, validation, selectable fields and columns. To add a kind,
// copy lease.go, add the row to [All] and its types to the scheme (kinds.go).
//
// Decisions:
//
//   - A row is data and plain functions on the Go types of k8s.io/api. There is no internal
//     version: the type of the storage version is the hub form, so defaults, validation and
//     storage use one struct. typed.go adapts the functions, table.go makes columns, and
//     invalid.go has the errors that several kinds report.
//   - Validation is written here because upstream's cannot be imported. Field paths and messages
//     are upstream's, because tools match them. Package rest validates the metadata of every
//     kind. ValidateUpdate is complete: it includes the rules of Validate.
//   - Whatever a write needs besides its own object (a cluster IP, a token) is a function in
//     [Config], so this package has no state, no clients and no goroutines.
//   - CEL expressions (match conditions, validations, variables, mutations) are checked for
//     presence and size, and are not compiled: the engine that evaluates policies reports those
//     that do not compile. Selectors of devices are compiled: nothing here evaluates them.
//   - Portico has no nodes, so node ports are kept if requested but never allocated, and
//     healthCheckNodePort is never required.
//   - Cluster IPs are IPv4 only.
//
// Runs in: core.
package kinds
