// Package managedfields records in metadata.managedFields which manager owns which
// fields of an object, for one write at a time: server-side apply and every other
// create, update and patch.
//
// Upstream's field manager (k8s.io/apimachinery/pkg/util/managedfields) decides. For
// the common update it is replaced by one walk over both states along the type
// (recordUpdate): every entry was written in the version of this write, no field has
// changed its type, and the client does not change the entries itself. Anything else
// makes the walk give up and goes to upstream's manager, so that both record the same;
// FuzzRecordUpdate compares them, and BenchmarkUpdate measures both. What upstream's
// manager is given is bounded (bounds.go), because it is quadratic in some of it.
//
// Owner here always means a manager's ownership of a field; metadata.ownerReferences
// are another subject.
//
// Runs in: gateway, core, crd.
package managedfields
