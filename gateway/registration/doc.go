// Package registration writes what the gateway found out (package gateway/routing) to
// what is stored.
//
//   - register.go stores the automanaged APIServices, of which claims.go says whose
//     each is, registrable.go which can be, and remove.go which are to go.
//   - introduce.go stores the Backends that the gateway starts with.
//   - conditions.go writes the condition Available of APIServices; statuswriter.go the
//     status of Backends, which status.go puts together, with what came of their claims
//     (outcome.go, registered.go). allowance.go bounds how often each is written.
//   - availability.go shows the conditions as upstream's metrics.
//
// It runs apart from what it tells of, so that a slow etcd delays no route, and writes
// only differences. Of several gateways on one etcd the one that is elected writes
// (writer.go); the others create what is new to them, each object once: who defined a
// resource a moment ago does not wait for an election. Of the gateway's packages it
// imports routing only.
//
// Runs in: gateway.
package registration
