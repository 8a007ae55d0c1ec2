// Package crd is the CRD server: CustomResourceDefinitions and the custom
// resources that they define, kept in etcd. It is a backend like any other to
// the gateway, which authenticates and authorizes; only its front-proxy
// identity is let in.
//
// What is served is one snapshot (served.go), made anew with every change of a
// definition: discovery, OpenAPI and the lookup of a request all read it. A
// definition whose specification did not change keeps its entry, and with it
// what was built for it. Schemas, validators and CEL programs are built when
// first needed and kept within a budget (schemas.go), for most of many
// definitions are never written to.
//
// Upstream's checks take time that grows with the square of a schema's depth and
// of an object's errors: schemas are nested no deeper than 128 levels
// (schema_depth.go), and who sends an object that is all wrong hears of the first
// thousand errors (schema_errors.go).
//
// The one fast path of writes is package prevalidate: an object whose bytes it finds
// valid is neither normalized nor validated.
//
// One watch of etcd covers every custom resource there is or will be: all of
// the storage but the built-in kinds' places (ranges.go). Installing a
// definition opens no connection and no watch. Reading all that takes seconds
// where there is a gigabyte of it; until then definitions are watched by
// themselves, and objects are read from and written to etcd.
//
// Namespaces belong to the core server; they are followed through the gateway
// (admission.NamespaceStates), and nothing waits for that to start.
//
// Runs in: crd.
package crd
