// Package client is a [resource.Store] over HTTP: the resources of another process under
// the contract of a Store.
//
// Decisions that shaped it:
//
//   - Objects travel as JSON, in the first of the resource's versions. apiVersion and
//     kind that a server leaves out of items of a list are filled in.
//   - Errors are StatusErrors; a server that cannot be reached is a 503. errors.Is
//     finds the cause.
//   - Update is a GET and a conditional PUT (or POST, DELETE), repeated while others
//     change the object: compare-and-swap stays inside the Store. A conflict on an
//     object that did not change is a decision of the server, and is returned.
//   - Responses are bounded. Lists and watches are read object by object, each
//     within a bound.
//
// Not possible over HTTP: times to live are refused as BadRequest, and a server that
// answers DELETE with a Status does not return the revision of the deletion.
//
// Runs in: gateway, core, crd.
package client
