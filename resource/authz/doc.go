// Package authz is the interface of authorizers, their union, and the message of a 403. RBAC
// is in package gateway/access.
//
// Decisions:
//
//   - There are three decisions. An authorizer without an opinion leaves the decision to the
//     next one; without any opinion the action is refused.
//   - An error counts only if no authorizer allowed the action, so that a failing authorizer
//     does not lock out users of another one.
//   - Authorization happens once, at the gateway. Backends trust an authenticated front proxy
//     and have no authorizer. For rights that only they can determine (an apply that creates)
//     they send an access review to the gateway.
//
// Runs in: gateway, core, crd.
package authz
