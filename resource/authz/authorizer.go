// Package authz is the interface of authorizers and the message of a 403. RBAC is in package
// gateway/access, the chain of authorizers in gateway/authorization.
//
// Decisions:
//
//   - Authorization happens once, at the gateway. Backends trust an authenticated front proxy
//     and have no authorizer. For rights that only they can determine (an apply that creates)
//     they send an access review to the gateway.
//
// Runs in: gateway, core, crd.
package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// Decision is the result of an authorizer.
type Decision int

const (
	// NoOpinion is the zero Decision: nothing allows the action, so it is refused.
	NoOpinion Decision = iota
	// Allow permits the action.
	Allow
	// Deny refuses the action.
	Deny
)

// Authorizer decides whether a.User may do a. Implementations are safe for concurrent
// use and do not change a.
type Authorizer interface {
	// Authorize returns the decision and its reason for users (may be ""). With an error the
	// decision may be incomplete: Allow applies, and any other decision is the error.
	Authorize(ctx context.Context, a *resource.Action) (decision Decision, reason string, err error)
}

// Engine is an Authorizer that lists rules as well.
type Engine interface {
	Authorizer
	// RulesFor returns the rules of a user in a namespace ("": those that apply everywhere). They
	// may be incomplete, with or without an error.
	RulesFor(ctx context.Context, u *resource.User, namespace string) (rules []rbacv1.PolicyRule, incomplete bool, err error)
}

// Everything returns the rules that permit everything.
func Everything() []rbacv1.PolicyRule {
	all := []string{"*"}
	return []rbacv1.PolicyRule{{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}
}

// Func makes an Authorizer of a function.
type Func func(ctx context.Context, a *resource.Action) (Decision, string, error)

// Authorize calls f.
func (f Func) Authorize(ctx context.Context, a *resource.Action) (Decision, string, error) {
	return f(ctx, a)
}

// Forbidden returns the 403 for an action that no authorizer allowed (docs/wire.md 3.6).
// reason is that of the authorizers and may be "". The user, the names and the path are parts
// of the request, so &, < and > are escaped: the text must not become markup in a page.
func Forbidden(a *resource.Action, reason string) error {
	message := escapeMarkup(refusal(a))
	if reason != "" {
		message += ": " + reason
	}
	gr := schema.GroupResource{Group: a.Group, Resource: a.Resource}
	return apierrors.NewForbidden(gr, a.Name, errors.New(message))
}

// refusal returns the message of a 403.
func refusal(a *resource.Action) string {
	var user string
	if a.User != nil {
		user = a.User.Name
	}
	if !a.IsResource {
		return fmt.Sprintf("User %q cannot %s path %q", user, a.Verb, a.Path)
	}
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", user, a.Verb, what, a.Group, where)
}

// escapeMarkup escapes HTML markup except quotes: messages have many, and are not used in
// attributes.
func escapeMarkup(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
