// Package fields compares the outcomes in backends/crd/testdata with those of a real
// kube-apiserver, which it builds from its module (.ci/long fields, which writes them with
// RECORD=1).
//
// Runs in: tests.
package fields
