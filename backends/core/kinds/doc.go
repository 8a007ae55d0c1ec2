// Package kinds is the core server's table of kinds: one row (rest.Kind) for each built-in
// resource, and one file for each row, with all that distinguishes the kind: names, defaults,
// the fields that clients may set, validation, selectable fields and columns. To add a kind,
// copy lease.go, add the row to [All] and its types to the scheme (kinds.go).
//
// Decisions:
//
//   - A row is data and plain functions on the Go types of k8s.io/api. There is no internal
//     version: the type of the storage version is the hub form, so defaults, validation and
//     storage use one struct. typed.go adapts the functions, and table.go makes columns. Package
//     rules has the checks that several kinds share, podspec those of pod templates, devices
//     those of resource.k8s.io.
//   - Validation is written here because that of kube-apiserver cannot be imported. Field paths
//     and messages are equal, because tools match them; module cmd/upstream compares them, and
//     testdata has objects and recorded outcomes. Package rest validates the metadata of every
//     kind. ValidateUpdate is complete: it includes the rules of Validate.
//   - Whatever a write needs besides its own object (cluster IPs and ports of a Service, a token)
//     is a function in [Config], so this package has no state, no clients and no goroutines.
//
// Runs in: core.
package kinds
