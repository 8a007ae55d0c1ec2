// Package managedfields records in metadata.managedFields which manager owns which fields of
// an object: for server-side apply and for every other create, update and patch.
//
// Upstream's field manager (k8s.io/apimachinery/pkg/util/managedfields) does so. Its input is
// bounded (bounds.go) because it is quadratic in some of it. The fast path is the creation of
// an object, which one walk along the type records (recordCreate) in a fraction of the time;
// BenchmarkCreate measures both, and FuzzRecordCreate compares them.
//
// Runs in: gateway, core, crd.
package managedfields
