package resource

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// User is the user of a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
	// Constraint narrows the rights of a user that is impersonated under one; nil for others.
	Constraint *Constraint
}

// String returns the user as kube-apiserver's messages show it: "&{NAME UID [GROUPS] map[EXTRA]}".
func (u *User) String() string {
	return fmt.Sprintf("&{%s %s %v %v}", u.Name, u.UID, u.Groups, u.Extra)
}

// Constraint is the bound of a constrained impersonation: every decision about the impersonated
// user also requires that Impersonator has the verb [Constraint.Verb] on the same target.
type Constraint struct {
	Impersonator *User
	// Mode is the mode of the impersonation, such as "user-info" (docs/wire.md 7.3).
	Mode string
}

// Verb returns the verb that the impersonator needs for a verb of the impersonated user.
func (c *Constraint) Verb(verb string) string { return "impersonate-on:" + c.Mode + ":" + verb }

// processPrefix is the prefix of the user names of Portico's own processes
// (system:portico:core), which have client certificates.
const processPrefix = "system:portico:"

// Unlimited reports whether the user is exempt from limits that users share: members of
// system:masters, so that administrators can act under load, and Portico's own processes, on
// which all requests depend.
func (u *User) Unlimited() bool {
	return slices.Contains(u.Groups, GroupMasters) || strings.HasPrefix(u.Name, processPrefix)
}

// LimitKey returns the key of the user for whom shared limits count the request: the authenticated
// user, not an impersonated one. The service accounts of a namespace count as one user, since a user
// that may write there can be any of them. A request without a user has the key "".
func (a *Action) LimitKey() string {
	switch user := cmp.Or(a.Impersonator, a.User); {
	case user == nil:
		return ""
	case strings.HasPrefix(user.Name, serviceAccountPrefix):
		namespace, _, _ := strings.Cut(user.Name[len(serviceAccountPrefix):], ":")
		return serviceAccountPrefix + namespace
	default:
		return user.Name
	}
}

// serviceAccountPrefix is the prefix of the user names of service accounts
// (system:serviceaccount:NAMESPACE:NAME).
const serviceAccountPrefix = "system:serviceaccount:"

// Well-known users and groups (k8s.io/apiserver authentication/user).
const (
	Anonymous            = "system:anonymous"
	GroupUnauthenticated = "system:unauthenticated"
	GroupAuthenticated   = "system:authenticated"
	GroupMasters         = "system:masters"
	KubeAggregator       = "system:kube-aggregator"
)

// Action is a parsed request: user, verb, resource. It is in the request's context
// (ActionFrom). Authentication sets User and impersonation replaces it; nothing else changes
// after parsing.
type Action struct {
	User *User
	// Impersonator is the authenticated user of a request that impersonates User; nil
	// for other requests. Audit records it; authorization uses User and its Constraint only.
	Impersonator *User
	// Verb is get, list, watch, create, update, patch, delete,
	// deletecollection or proxy for resources; the lower-case method otherwise.
	Verb string
	// Path is the URL path, unescaped.
	Path string
	// IsResource is set for a request of a resource, which has the fields below.
	IsResource  bool
	Group       string
	Version     string
	Namespace   string
	Resource    string
	Subresource string
	// Name is the object's name; for list and watch it may come from the field
	// selector metadata.name=x, for authorization only (then InPath is false).
	Name   string
	InPath bool
	// Rest has the path segments after the subresource (pods/x/proxy/a/b).
	Rest []string
	// LabelSelector and FieldSelector are the raw query values, for list,
	// watch (not by the legacy prefix) and deletecollection.
	LabelSelector string
	FieldSelector string
	// Follow is set for a stream of discovery changes (GET /apis?watch=true), which is not a
	// watch of a resource.
	Follow bool
	// Streams is set if the client accepts a stream of events (IsEventStream) and the server
	// may respond with one: the request has no deadline, and is limited like any other until
	// the response is a stream. It is set before the Action is shared.
	Streams bool
}

// GroupVersion returns "group/version", or "version" for the core group.
func (a *Action) GroupVersion() string {
	if a.Group == "" {
		return a.Version
	}
	return a.Group + "/" + a.Version
}

// LongRunning reports whether the request has no deadline: watches, the legacy proxy prefix,
// streaming subresources, profiles, streams of metadata (docs/wire.md 11.3) and event streams.
func (a *Action) LongRunning() bool {
	if a.Streams {
		return true
	}
	if a.IsResource {
		if a.Verb == "watch" || a.Verb == "proxy" {
			return true
		}
		switch a.Subresource {
		case "attach", "exec", "proxy", "log", "portforward":
			return true
		}
		return false
	}
	return a.Follow || strings.HasPrefix(a.Path, "/debug/pprof/") || strings.HasPrefix(a.Path, "/internal/metadata")
}

// IsEventStream reports whether a message with the header is a stream of server-sent events.
func IsEventStream(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

// Mutating reports whether the verb can change anything.
func (a *Action) Mutating() bool {
	switch a.Verb {
	case "get", "list", "watch", "head", "options":
		return false
	}
	return true
}

// ParseAction parses verb and target of the request line by the rules of kube-apiserver
// (k8s.io/apiserver endpoints/request RequestInfo). A request that is not of a resource is a
// non-resource request.
func ParseAction(r *http.Request) *Action {
	a := &Action{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	var room [8]string // most paths have no more segments; it is not on the heap
	parts := splitPath(r.URL, room[:0])
	if len(parts) == 1 && (parts[0] == "api" || parts[0] == "apis") && r.Method == http.MethodGet {
		a.Follow = wantsWatch(r.URL.Query())
	}
	if len(parts) < 3 {
		return a
	}
	switch parts[0] {
	case "api":
		a.Version, parts = parts[1], parts[2:]
	case "apis":
		if len(parts) < 4 {
			return a
		}
		a.Group, a.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return a
	}
	a.IsResource, a.Verb = true, verbOf(r.Method)
	legacy := parts[0] == "watch" || parts[0] == "proxy"
	if legacy {
		if len(parts) < 2 {
			return &Action{Path: a.Path, Verb: strings.ToLower(r.Method)}
		}
		a.Verb, parts = parts[0], parts[1:]
	}
	// /namespaces/<ns>[/status|finalize] is the Namespace object; longer paths are in the
	// namespace.
	if parts[0] == "namespaces" && len(parts) > 1 {
		a.Namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	a.Resource = parts[0]
	if len(parts) > 1 {
		a.Name, a.InPath = parts[1], true
	}
	if len(parts) > 2 {
		a.Subresource = parts[2]
	}
	if len(parts) > 3 {
		a.Rest = slices.Clone(parts[3:])
	}
	// Legacy prefixes determine the verb and have no selectors.
	if !legacy {
		var query url.Values
		if r.URL.RawQuery != "" {
			query = r.URL.Query()
		}
		a.refineVerb(query)
	}
	return a
}

// verbOf returns the verb of a method on a resource, before refineVerb; "": there is none.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// refineVerb changes get and delete to list, watch and deletecollection, and sets selectors.
func (a *Action) refineVerb(query url.Values) {
	if !a.InPath && a.Verb == "delete" {
		a.Verb = "deletecollection"
	}
	if !a.InPath && a.Verb == "get" {
		a.Verb = "list"
		if wantsWatch(query) {
			a.Verb = "watch"
		}
	}
	switch a.Verb {
	case "list", "watch", "deletecollection":
		a.LabelSelector, a.FieldSelector = query.Get("labelSelector"), query.Get("fieldSelector")
		if !a.InPath && a.Verb != "deletecollection" && a.FieldSelector != "" {
			if sel, err := fields.ParseSelector(a.FieldSelector); err == nil {
				if name, ok := sel.RequiresExactMatch("metadata.name"); ok && validName(name) {
					a.Name = name
				}
			}
		}
	}
}

// wantsWatch reports whether the parameter watch is present and neither false nor 0.
func wantsWatch(query url.Values) bool {
	v, ok := query["watch"]
	return ok && len(v) > 0 && !strings.EqualFold(v[0], "false") && v[0] != "0"
}

// validName reports whether a name of a selector can be a path segment, so that it cannot
// widen an authorization.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/%")
}

// splitPath appends the segments of the path to parts. Encoded slashes do not separate
// segments.
func splitPath(u *url.URL, parts []string) []string {
	path := strings.Trim(u.EscapedPath(), "/")
	if path == "" {
		return parts
	}
	for p := range strings.SplitSeq(path, "/") {
		if s, err := url.PathUnescape(p); err == nil {
			p = s
		}
		parts = append(parts, p)
	}
	return parts
}

type actionKey struct{}

// WithAction returns a context that carries the action.
func WithAction(ctx context.Context, a *Action) context.Context { return &ActionContext{ctx, a} }

// ActionContext is a context with an action. Context types with more values embed it.
type ActionContext struct {
	context.Context
	Action *Action
}

// Value implements context.Context.
func (c *ActionContext) Value(key any) any {
	if key == (actionKey{}) {
		return c.Action
	}
	return c.Context.Value(key)
}

// ActionFrom returns the request's action; nil when there is none.
func ActionFrom(ctx context.Context) *Action {
	a, _ := ctx.Value(actionKey{}).(*Action)
	return a
}
