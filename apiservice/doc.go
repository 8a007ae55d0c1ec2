// Package apiservice is the APIService kind (apiregistration.k8s.io): the API groups and
// versions that the gateway serves, and the server of each.
//
// The type is upstream's (k8s.io/kube-aggregator); the row for package rest,
// the validation, the order of groups and versions and the Available condition
// are here. Whether a server answers is decided by package availability.
//
// An APIService without spec.service is called local: it stands for a group of
// the gateway itself or, when it is automanaged, for a group that a backend
// named in [BackendAnnotation] was found to serve.
//
// Runs in: gateway.
package apiservice
