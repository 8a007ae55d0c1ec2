// Package registration writes the findings of package gateway/routing to the stored
// APIServices and Backends.
//
//   - register.go stores the automanaged APIServices, claims.go decides which Backend
//     each belongs to, registrable.go which can be stored, and remove.go which are removed.
//   - introduce.go stores the Backends that the gateway starts with.
//   - conditions.go writes the condition Available of APIServices; statuswriter.go the
//     status of Backends, which status.go puts together, with what came of their claims
//     (result.go, registered.go). allowance.go bounds how often each is written.
//   - availability.go shows the conditions as upstream's metrics.
//
// It runs apart from routing, so that a slow etcd delays no route, and writes differences
// only. Of several gateways on one etcd the elected one writes (writer.go). The others
// create what is missing, each object once, so that a new definition is served without
// waiting for an election. Of the gateway's packages it imports routing only.
//
// Runs in: gateway.
package registration
