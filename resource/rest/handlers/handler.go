package handlers

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/rest"
	"portico/resource/rest/body"
)

// Defaults of Config.
const (
	// DefaultMaxBody is the largest request body, in bytes (docs/wire.md 0.2).
	DefaultMaxBody = 3 << 20
	// DefaultMinWatch is the shortest life of a watch that names no
	// timeoutSeconds; the longest is twice that.
	DefaultMinWatch = 1800 * time.Second
)

// Config is what an API needs to serve.
type Config struct {
	// Resources are the kinds served. Ignored when Lookup is set.
	Resources []*rest.Resource
	// Lookup, if not nil, finds the resource of a request instead: nil, nil is
	// an unknown resource (404 text); an error is sent as it is.
	Lookup func(a *resource.Action) (*rest.Resource, error)
	// Admission checks every write; nil: there is none.
	Admission rest.Admission
	// Authorize asks whether the user may also do what the action says, for an
	// update that creates (docs/wire.md 4.7). Its error is sent as it is; nil: yes.
	Authorize func(ctx context.Context, a *resource.Action) error
	// Warn adds a Warning header to the response; nil: warnings are dropped.
	Warn rest.Warn
	// MaxBody is the largest request body in bytes; 0 is DefaultMaxBody.
	MaxBody int64
	// MinWatch is the shortest life of a watch without timeoutSeconds; 0 is
	// DefaultMinWatch.
	MinWatch time.Duration
	// Metrics registers the metrics of watches; nil: they are not registered.
	Metrics prometheus.Registerer
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// API serves resources. It is an http.Handler that finds what is asked for in
// the request's Action. Safe for concurrent use.
type API struct {
	lookup    func(a *resource.Action) (*rest.Resource, error)
	admission rest.Admission
	authorize func(ctx context.Context, a *resource.Action) error
	warn      rest.Warn
	maxBody   int64
	minWatch  time.Duration
	logger    *slog.Logger
	forms     *formCache
	gzips     *gzipPool
	frames    *frameTable
	buffers   *bufferPool
	reading   *body.Budget
	decoding  *body.Budget
	pieces    *piecePool
	watches   *watchMetrics
	outdated  *deprecatedMetrics
}

// New returns an API over the configured resources.
func New(cfg Config) *API {
	a := &API{
		lookup:    cfg.Lookup,
		admission: cfg.Admission,
		authorize: cfg.Authorize,
		warn:      cfg.Warn,
		maxBody:   cfg.MaxBody,
		minWatch:  cfg.MinWatch,
		logger:    cfg.Logger,
		forms:     newFormCache(defaultFormBytes),
		gzips:     &gzipPool{},
		frames:    newFrameTable(),
		buffers:   &bufferPool{},
		reading:   body.NewBudget(body.ReadMemory),
		decoding:  body.NewBudget(body.DecodeMemory),
		pieces:    &piecePool{},
		watches:   newWatchMetrics(),
		outdated:  newDeprecatedMetrics(),
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(a.watches, a.outdated.gauge)
	}
	if a.lookup == nil {
		a.lookup = lookupIn(cfg.Resources)
	}
	if a.warn == nil {
		a.warn = func(context.Context, string) {}
	}
	if a.maxBody == 0 {
		a.maxBody = DefaultMaxBody
	}
	if a.minWatch == 0 {
		a.minWatch = DefaultMinWatch
	}
	if a.logger == nil {
		a.logger = slog.Default()
	}
	return a
}

// lookupIn makes a Lookup over a fixed table.
func lookupIn(resources []*rest.Resource) func(*resource.Action) (*rest.Resource, error) {
	table := make(map[schema.GroupResource]*rest.Resource, len(resources))
	for _, res := range resources {
		table[res.GroupResource()] = res
	}
	return func(act *resource.Action) (*rest.Resource, error) {
		return table[schema.GroupResource{Group: act.Group, Resource: act.Resource}], nil
	}
}

// annotationDeprecated marks requests for a deprecated version, for audit.
const annotationDeprecated = "k8s.io/deprecated"

// ServeHTTP answers the request named by the Action in its context.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	act := resource.ActionFrom(r.Context())
	res, sub, err := a.find(act)
	switch {
	case err != nil:
	case res == nil:
		notFound(w)
		return
	default:
		if res.Deprecated != nil {
			if text := res.Deprecated(act.Version); text != "" {
				a.warn(r.Context(), text)
				a.outdated.requested(act)
				audit.Annotate(r.Context(), annotationDeprecated, "true")
			}
		}
		err = a.serve(w, r, act, res, sub)
	}
	if err != nil {
		WriteStatus(w, r, err)
	}
}

// notFound is the answer for a path that is not served: text, which clients read as a
// generic NotFound (docs/wire.md 0.3).
func notFound(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "404 page not found\n")
}

// find returns the resource and the subresource (nil: the resource itself)
// that the action names; a nil resource is an unknown path.
func (a *API) find(act *resource.Action) (*rest.Resource, *rest.Subresource, error) {
	if act == nil || !act.IsResource || act.Verb == "proxy" {
		return nil, nil, nil
	}
	res, err := a.lookup(act)
	if err != nil || res == nil || !res.Serves(act.Version) {
		return nil, nil, err
	}
	// A namespace is addressed by its own name in the namespace position.
	inNamespace := act.Namespace != "" && !(act.Resource == "namespaces" && act.Group == "" && act.Namespace == act.Name)
	if inNamespace && !res.Namespaced {
		return nil, nil, nil
	}
	if res.Namespaced && act.Namespace == "" && act.InPath {
		return nil, nil, nil
	}
	if act.Subresource == "" {
		return res, nil, nil
	}
	for i := range res.Subresources {
		if sub := &res.Subresources[i]; sub.Name == act.Subresource {
			if len(act.Rest) > 0 && sub.Connect == nil {
				return nil, nil, nil
			}
			return res, sub, nil
		}
	}
	return nil, nil, nil
}

// serve checks that the verb may be used here and calls its implementation.
func (a *API) serve(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	if sub != nil && sub.Connect != nil {
		return a.subresource(w, r, act, res, sub)
	}
	if err := checkVerb(r, act, res, sub); err != nil {
		return err
	}
	if act.Mutating() {
		// The result of a write must have a format that the client accepts.
		f, err := negotiate(r, a.offerOf(act, res, sub))
		if err == nil && f.transform == asTable {
			_, err = a.newTables(r, act, res, f)
		}
		if err != nil {
			return err
		}
	}
	if sub != nil {
		return a.subresource(w, r, act, res, sub)
	}
	if res.Review != nil {
		return a.review(w, r, act, res)
	}
	switch act.Verb {
	case "get":
		return a.get(w, r, act, res)
	case "list":
		return a.list(w, r, act, res)
	case "watch":
		return a.watch(w, r, act, res)
	case "create":
		return a.create(w, r, act, res)
	case "update":
		return a.update(w, r, act, res)
	case "patch":
		return a.patch(w, r, act, res)
	case "delete":
		return a.delete(w, r, act, res)
	case "deletecollection":
		return a.deleteCollection(w, r, act, res)
	}
	return methodNotAllowed(act, res)
}

// allVerbs is what Kind.Verbs nil stands for; viewVerbs is the same for a
// subresource.
func allVerbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

func viewVerbs() []string { return []string{"get", "patch", "update"} }

// checkVerb returns a 405 for a verb that the kind has not, or not at this
// kind of path.
func checkVerb(r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	var verbs []string
	switch {
	case sub != nil && sub.Verbs != nil:
		verbs = sub.Verbs
	case sub != nil && sub.Create != nil:
		verbs = []string{"create"}
	case sub != nil:
		verbs = viewVerbs()
	case res.Review != nil:
		verbs = []string{"create"}
	case res.Verbs != nil:
		verbs = res.Verbs
	default:
		verbs = allVerbs()
	}
	if !slices.Contains(verbs, act.Verb) || !verbFitsPath(r, act, res, sub) {
		return methodNotAllowed(act, res)
	}
	return nil
}

// verbFitsPath reports whether method, verb and path go together: HEAD is not
// offered, a legacy watch path is read only, creation has no name (unless it is
// a subresource's) and change has one, and nothing is created or collected in
// all namespaces at once (docs/wire.md 1.1, 1.2).
func verbFitsPath(r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) bool {
	if r.Method == http.MethodHead {
		return false
	}
	allNamespaces := res.Namespaced && act.Namespace == ""
	switch act.Verb {
	case "watch":
		return r.Method == http.MethodGet
	case "create":
		return act.InPath == (sub != nil) && !allNamespaces
	case "deletecollection":
		return !allNamespaces
	case "get", "update", "patch", "delete":
		return act.InPath
	}
	return true
}

// methodNotAllowed is the 405 for the action's verb.
func methodNotAllowed(act *resource.Action, res *rest.Resource) error {
	gr := res.GroupResource()
	if act.Subresource != "" {
		gr.Resource += "/" + act.Subresource
	}
	verb := act.Verb
	if verb == "" {
		verb = "this method"
	}
	err := apierrors.NewMethodNotSupported(gr, verb)
	err.ErrStatus.Message = fmt.Sprintf("%s is not supported on resources of kind %q", verb, gr.String())
	return err
}

// keyOf returns the storage key of the object that the action names.
func keyOf(act *resource.Action, res *rest.Resource) resource.Key {
	if !res.Namespaced {
		return resource.Key{Name: act.Name}
	}
	return resource.Key{Namespace: act.Namespace, Name: act.Name}
}
