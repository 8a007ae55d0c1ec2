// Package apiservice is the APIService kind (apiregistration.k8s.io): the API groups and
// versions that the gateway serves, and the server of each.
//
// The type is upstream's (k8s.io/kube-aggregator). The package has the row for package rest,
// the validation, the order of groups and versions, and the condition Available. Package
// availability checks servers.
//
// An APIService without spec.service is called local. It is served by the gateway or by the
// Backend that [BackendAnnotation] names.
//
// Runs in: gateway.
package apiservice
