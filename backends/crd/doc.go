// Package crd is the CRD server: CustomResourceDefinitions and the custom resources that
// they define, kept in etcd. To the gateway, which authenticates and authorizes, it is a
// backend like any other; it accepts the front-proxy identity only.
//
// Discovery, OpenAPI and the lookup of a request read one snapshot of what is served
// (served.go), which is rebuilt with every change of a definition. A definition with an
// unchanged specification keeps its entry, and with it what was built for it. Package
// custom makes the rows of custom resources, and package prevalidate is the one fast path
// of writing them.
//
// Upstream's validation of definitions takes time that grows with the square of a schema's
// depth: schemas are nested at most 128 levels deep, and the size of patterns is bounded (schemas.go).
//
// One watch of etcd covers every custom resource: all of the storage except the prefixes of
// the built-in kinds (builtinPaths). Installing a definition opens no connection and no
// watch. Reading a gigabyte of objects takes seconds; until then the definitions stored at
// the start are served, and their objects are read from and written to etcd.
//
// Namespaces belong to the core server; they are followed through the gateway
// (admission.NamespaceStates), and nothing waits for that to start.
//
// Runs in: crd.
package crd
