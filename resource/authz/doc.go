// Package authz is the interface of authorizers, their combination, and the text of a
// refusal. RBAC is in package gateway/access.
//
// Decisions that shaped it:
//
//   - There are three answers. An authorizer without an opinion leaves the
//     decision to the next one; no opinion at all is a refusal.
//   - An error is not a refusal. It is reported only if no authorizer allowed the
//     action, so that a broken authorizer does not lock out users of another one.
//   - Authorization happens once, at the gateway. The servers behind it trust an
//     authenticated front proxy and run without an authorizer. A right that only
//     they find to be needed (an apply that creates) is a review sent to the
//     gateway.
//
// Runs in: gateway, core, crd.
package authz
