package resource

import (
	"context"
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
}

// processPrefix begins the names of Portico's own processes (system:portico:core), which
// they get from client certificates.
const processPrefix = "system:portico:"

// Unlimited reports whether the user is exempt from limits that users share:
// system:masters, to put things right while others take what they can, and Portico's
// own processes, on which all requests depend.
func (u *User) Unlimited() bool {
	return slices.Contains(u.Groups, GroupMasters) || strings.HasPrefix(u.Name, processPrefix)
}

// Well-known users and groups (k8s.io/apiserver authentication/user).
const (
	Anonymous            = "system:anonymous"
	GroupUnauthenticated = "system:unauthenticated"
	GroupAuthenticated   = "system:authenticated"
	GroupMasters         = "system:masters"
	KubeAggregator       = "system:kube-aggregator"
)

// Action is a request, parsed once: user, verb, resource. It is in the request's context
// (ActionFrom). User is set by authentication and replaced by impersonation; nothing
// else changes after parsing.
type Action struct {
	User *User
	// Impersonator is the authenticated user of a request that impersonates User; nil
	// for other requests. Audit records it; authorization and the servers behind the
	// gateway use User only.
	Impersonator *User
	// ImpersonationConstraint is the verb that permitted a constrained
	// impersonation ("impersonate:user-info"); "" for an unconstrained one.
	ImpersonationConstraint string
	// Verb is get, list, watch, create, update, patch, delete,
	// deletecollection or proxy for resources; the lower-case method otherwise.
	Verb string
	// Path is the URL path, unescaped.
	Path string
	// IsResource says that the fields below are set.
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
	// Rest holds path segments behind the subresource (pods/x/proxy/a/b).
	Rest []string
	// LabelSelector and FieldSelector are the raw query values, for list,
	// watch (not by the legacy prefix) and deletecollection.
	LabelSelector string
	FieldSelector string
	// Follow says that a reader of discovery waits for changes (GET /apis?watch=true),
	// which is not a watch of a resource.
	Follow bool
	// Streams says that the client accepts a stream of events (IsEventStream) and the
	// server may answer with one: the request has no deadline, and counts like any other
	// until the answer is known to be a stream. It is set before the Action is shared.
	Streams bool
}

// GroupVersion returns "group/version", or "version" for the core group.
func (a *Action) GroupVersion() string {
	if a.Group == "" {
		return a.Version
	}
	return a.Group + "/" + a.Version
}

// LongRunning reports whether the request has no deadline: watches, the
// legacy proxy prefix, streaming subresources and profiles (docs/wire.md 11.3), and
// what else is known to stream.
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
	return a.Follow || strings.HasPrefix(a.Path, "/debug/pprof/")
}

// IsEventStream reports whether what a header belongs to is a stream of
// server-sent events.
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

// ParseAction reads verb and target from the request line, by the rules of
// kube-apiserver (k8s.io/apiserver endpoints/request RequestInfo). It never
// fails: what is no resource request is a non-resource one.
func ParseAction(r *http.Request) *Action {
	a := &Action{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	var room [8]string // most paths have no more, and it is not on the heap
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
	a.IsResource = true
	switch r.Method {
	case http.MethodPost:
		a.Verb = "create"
	case http.MethodGet, http.MethodHead:
		a.Verb = "get"
	case http.MethodPut:
		a.Verb = "update"
	case http.MethodPatch:
		a.Verb = "patch"
	case http.MethodDelete:
		a.Verb = "delete"
	default:
		a.Verb = ""
	}
	legacy := parts[0] == "watch" || parts[0] == "proxy"
	if legacy {
		if len(parts) < 2 {
			return &Action{Path: a.Path, Verb: strings.ToLower(r.Method)}
		}
		a.Verb, parts = parts[0], parts[1:]
	}
	// The Namespace object itself is /namespaces/<ns>[/status|finalize];
	// anything longer is inside the namespace.
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
	// The legacy prefixes have the verb, and authorize no selectors.
	if !legacy {
		var query url.Values
		if r.URL.RawQuery != "" {
			query = r.URL.Query()
		}
		a.refineVerb(query)
	}
	return a
}

// refineVerb tells list, watch and deletecollection from get and delete.
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

// wantsWatch reads the watch parameter: whatever is not false is true.
func wantsWatch(query url.Values) bool {
	v, ok := query["watch"]
	return ok && len(v) > 0 && !strings.EqualFold(v[0], "false") && v[0] != "0"
}

// validName reports whether a name from a selector may stand for a path
// segment, so that it cannot widen an authorization.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/%")
}

// splitPath cuts the path into segments, which it appends. Encoded slashes stay
// inside their segment.
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

// ActionContext is a context with an action. A context type that has more values embeds
// it.
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
