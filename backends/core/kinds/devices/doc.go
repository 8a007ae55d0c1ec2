// Package devices has the defaults and rules of resource.k8s.io/v1. The tags of the types in
// k8s.io/api say most of both; generators of Kubernetes make the zz_generated files from them.
// The files of the kinds add what the tags do not say: references within an object, node
// selectors, capacities, CEL expressions, and the fields that are off by default.
//
// Runs in: core.
//
// +k8s:defaulter-gen=TypeMeta
// +k8s:defaulter-gen-input=k8s.io/api/resource/v1
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/resource/v1
// +k8s:validation-gen-scheme-registry=nil
package devices

//go:generate ./generate
