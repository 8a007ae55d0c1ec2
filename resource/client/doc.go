// Package client is a [resource.Store] over HTTP: what another process serves,
// seen through the same contract as what this one stores.
//
// Decisions that shaped it:
//
//   - Objects travel as JSON, in the first of the resource's versions. Where a
//     server leaves apiVersion and kind out of a list's items, they are put in:
//     an Object is whole.
//   - Errors arrive as Status and leave as StatusErrors; a server that was not
//     reached is a 503. The cause stays visible to errors.Is.
//   - Update is a GET and a PUT (or POST, DELETE) that carries the state it was
//     made from, again while others change the object: compare-and-swap stays
//     inside the Store. A conflict about an object that nobody has changed is
//     the server's own opinion, and is returned.
//   - Nothing that arrives is trusted to be small. Lists and watches are read
//     object by object, each within a bound.
//
// What HTTP cannot do: times to live are refused as BadRequest, and a server
// that answers DELETE with a Status does not tell the revision of the deletion.
//
// Runs in: gateway, core, crd.
package client
