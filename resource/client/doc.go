// Package client is a [resource.Store] over HTTP: what another process serves,
// seen through the same contract as what this one stores.
//
// Objects travel as JSON. Errors arrive as Status and leave as StatusErrors.
// Update is a GET and a PUT (or POST) that carries the resourceVersion it was
// made from, again on conflict: compare-and-swap stays inside the Store.
//
// Runs in: gateway, core, crd.
package client
