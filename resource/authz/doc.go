// Package authz says whether a user may do what an [resource.Action] asks for.
//
// It holds the interface that every authorizer of Portico satisfies, the ways
// to combine them, and the one place that words a refusal. RBAC itself lives
// in the gateway.
//
// Decisions that shaped it:
//
//   - Three answers, not two. An authorizer without an opinion leaves the
//     question to the next one; nobody's opinion is a refusal.
//   - An error is not a refusal. It is reported only when nobody allowed the
//     action, so that one broken authorizer cannot lock out those that another
//     one knows.
//   - Authorization happens once, at the gateway. The servers behind it trust
//     an authenticated front proxy, so they run without an authorizer. What
//     only they find out to need another right (an apply that creates) they
//     ask the gateway about, as any delegated server would.
//
// Runs in: gateway, core, crd.
package authz
