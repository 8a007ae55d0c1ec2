package authz

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

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
